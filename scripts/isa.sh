#!/bin/sh
# SPDX-License-Identifier: ISC
# Prints for make which instruction sets of core/kernel/isa.def $CC and its
# assembler accept for this target, and the flags of their files.  Both are
# asked: gcc can know an instruction that its binutils do not.  Fails where
# nothing can be compiled.
# shellcheck disable=SC2086  # flags are several words
echo '#include <stdlib.h>' | $CC -x c - -c -o /dev/null || exit
# Not by fields: of a paragraph's lines some awks make fields whatever -F says.
awk -v RS= '/^ISA\(/ {
        gsub(/\n/, " ")
        split($0, part, "\"")
        split(part[1], word, /[(,] */)
        print word[3] "|" part[2] "|" part[4]
    }' core/kernel/isa.def |
    while IFS='|' read -r name flags instructions; do
        printf 'void f(void);void f(void){__asm__("%s");}\n' "$instructions" |
            $CC $flags -x c - -c -o /dev/null 2>/dev/null || continue
        echo "ISAS += $name"
        echo "\$(B)/%_$name.o: ISA_FLAGS := $flags"
    done
