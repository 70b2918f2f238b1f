#!/bin/sh
# Prints "ISAS := ..." for the instruction sets that $CC and its assembler
# accept for this target.  Both are asked: gcc can know an instruction that its
# binutils do not.  Fails where nothing can be compiled.
# shellcheck disable=SC2086  # flags are several words
ok() {
    printf '#include <%s>\nvoid f(void *p);void f(void *p){%s}\n' "$1" "$3" |
        $CC $2 -x c - -c -o /dev/null 2>/dev/null
}
echo '#include <stdlib.h>' | $CC -x c - -c -o /dev/null || exit
x=immintrin.h
avx512='-mavx512f -mavx512bw -mavx512dq -mavx512vl'
list=
ok $x '-mavx2 -mfma -mf16c' '_mm256_storeu_ps(p,_mm256_fmadd_ps(_mm256_setzero_ps(),_mm256_setzero_ps(),_mm256_setzero_ps()));' && list="$list avx2"
ok $x "$avx512" '_mm512_storeu_ps(p,_mm512_setzero_ps());' && list="$list avx512"
ok $x "$avx512 -mavx512vnni" '__m512i z=_mm512_setzero_si512();_mm512_storeu_si512(p,_mm512_dpbusd_epi32(z,z,z));' && list="$list avx512vnni"
ok $x "$avx512 -mavx512bf16" '_mm512_storeu_ps(p,_mm512_dpbf16_ps(_mm512_setzero_ps(),*(__m512bh*)p,*(__m512bh*)p));' && list="$list avx512bf16"
ok $x '-mamx-tile -mamx-bf16 -mamx-int8' '_tile_dpbf16ps(0,1,2);_tile_dpbssd(0,1,2);(void)p;' && list="$list amx"
ok arm_neon.h '' 'vst1q_f32(p,vfmaq_f32(vdupq_n_f32(0),vdupq_n_f32(1),vdupq_n_f32(1)));' && list="$list neon"
echo "ISAS :=$list"
