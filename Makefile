# SPDX-License-Identifier: ISC
# tensorutils: GNU make, one file, no configure.
#   make deps       install what the build needs  make            build/TOOL for every tool
#   make deps-check install what tests need, too  make check      unit tests, bats, man pages (T=TOOL: one tool's)
#   make demo       the main job, on a page (V=1: every command)
#   make V=1 ...    every command, not a line for each tool
#   make lint       format, layers, names, sizes  make bench      a table of measurements (PEERS=1: others' too)
#   make lib        libtensorutils.so and .a, as make does, too
#   make install    DESTDIR= PREFIX=/usr/local    make SAN=1 ...  (or SAN=thread) sanitized, next to the normal build
#   make uninstall  what install put there        make STATIC=half  only libc is left to the node that runs it
#   make MPI=1      build/mpi/moe-sft, for several processes; of the same objects
#   make wheel      tensorutils.py with the library inside, for pip
#   make deb        a Debian package              make html       the pages for a browser
#   make dist       a tarball of the last commit    make fmt        clang-format
# test/check.mk has the tests, test/hard.mk what takes longer; test/README lists them all.
VERSION := 0.2
PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
MANDIR  ?= $(DATADIR)/man
LIBDIR  ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BASHDIR ?= $(DATADIR)/bash-completion/completions
ZSHDIR  ?= $(DATADIR)/zsh/site-functions

# One line for each library and tool, none with -s; V=1 shows all commands.
Q       := $(if $(V),,@)
built    = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),,@echo 'built $@')

# A report's lines; what a debugger asks for as well, by CFLAGS='-O2 -g', takes
# gcc a third longer for vectors.
CFLAGS  ?= -O2 -g1
STRIP   ?= strip
OBJCOPY ?= $(shell $(CC) -print-prog-name=objcopy)
WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
           -Wcast-qual -Wwrite-strings -Wformat=2 -Wundef -Wconversion -Wno-sign-conversion
HARDEN  := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
B       := build
ifeq ($(SAN),thread)
B       := build/tsan
HARDEN  := -fsanitize=thread -fno-omit-frame-pointer
else ifeq ($(SAN),fuzz)
B       := build/fuzz
CC      := clang
HARDEN  := -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined -fno-omit-frame-pointer
else ifeq ($(SAN),cov)
B       := build/cov
HARDEN  := --coverage -fprofile-update=single
CFLAGS  := -O1 -g
else ifdef SAN
B       := build/san
HARDEN  := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif
# A report needs lines alone; what a debugger asks takes gcc half of the time.
# So do -O2's passes over checked accesses, and win a seventh; fuzzers run longer.
ifdef SAN
CFLAGS  := $(CFLAGS:-g=-g1)
ifneq ($(SAN),fuzz)
CFLAGS  := $(CFLAGS:-O2=-O1)
endif
endif
# A build takes all CPUs unless -j, here or in MAKEFLAGS, says how many.
ifeq ($(shell printf %s "$$MAKEFLAGS")$(filter-out all lib deps demo wheel deb html install,$(MAKECMDGOALS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif
# One word for the shell, whatever the directory's name.
quote    = '$(subst ','\'',$1)'
# Results must not depend on the compiler: fma only where the source says so.
# Binaries must not depend on the directory they were built in.
# (s390x alone computes float as double in ISO C: gcc's FLT_EVAL_METHOD is 1.)
EXCESS  := $(if $(findstring s390,$(shell { $(CC) -dumpmachine; } 2>/dev/null)),-fexcess-precision=fast)
FLAGS    = -std=c11 -ffp-contract=off $(EXCESS) -pthread -fPIC -fvisibility=hidden $(call quote,-ffile-prefix-map=$(CURDIR)=.) $(HARDEN) $(WARN) \
           -I. -D_GNU_SOURCE -DVERSION='"$(VERSION)"' $(CPPFLAGS) $(CFLAGS)
# Each tool is linked with those that it needs; macOS has another linker, and
# no library of ours.
MACOS   := $(filter Darwin,$(shell uname))
AS_NEEDED := $(if $(MACOS),,-Wl,--as-needed)
LIBS     = $(AS_NEEDED) -ljansson -lxxhash -lcrypto $(if $(call lacks,pcre2),,-lpcre2-8) \
           $(if $(call lacks,utf8proc),,-lutf8proc) $(if $(no_pictures),,-lpng -ljpeg) \
           $(if $(call lacks,zlib),,-lz) -lm
lacks    = $(filter $1,$(LACKING))
no_pictures = $(call lacks,libpng libjpeg)
# The tools are in $(B); of the same objects, with STATIC=half in $(B)/half,
# with MPI=1 in $(B)/mpi.  An environment may have an MPI.
MPI     := $(if $(filter command%,$(origin MPI)),$(MPI))
ifeq ($(STATIC),half)
TOOLDIR := $(B)/half
ifdef MPI
$(error MPI and STATIC do not go together: MPI has no static libraries)
endif
LINK     = -static-libgcc -Wl,-Bstatic $(filter-out -lm,$(LIBS)) -Wl,-Bdynamic -lm -ldl
else ifdef STATIC
$(error STATIC is half, or not given)
else
TOOLDIR := $(B)$(if $(MPI),/mpi)
LINK     = $(LIBS) $(if $(MPI),$(MPI_LIBS))
endif
ifdef MPI
MPI_LIBS   := $(shell MPICC='$(MPICC)' sh scripts/mpi.sh libs)
MPI_CFLAGS := $(shell MPICC='$(MPICC)' sh scripts/mpi.sh cflags)
$(if $(MPI_LIBS),,$(error MPI=1 needs Open MPI or MPICH, and finds neither by mpicc nor by \
  pkg-config: on Debian, apt-get install libopenmpi-dev openmpi-bin; on a cluster, its module, or MPICC=))
endif

# A tool is cmd/TOOL.c, or every file of cmd/TOOL/. A test or benchmark is one
# file; it may be of a tool's own code, which its name then begins with.
TOOLS   := $(sort $(basename $(notdir $(wildcard cmd/*.c))) \
             $(foreach d,$(wildcard cmd/*/main.c),$(notdir $(patsubst %/main.c,%,$d))))
# build/libs.mk says which libraries are LACKING: a tool that needs one of
# them, as not all do, is left out, with its tests in C; and so are the tests
# and the files of the libraries that need it.
NEEDS_hf-infer    := pcre2 utf8proc zlib libpng libjpeg
NEEDS_moe-sft     := pcre2 utf8proc zlib
NEEDS_kvc-convert := zlib
NEEDS_lut-precompute := zlib
NEEDS_sae-train   := zlib
NEEDS_sae-look    := pcre2 utf8proc zlib
-include $(B)/libs.mk
LEFT_OUT := $(strip $(foreach t,$(TOOLS),$(if $(filter $(LACKING),$(NEEDS_$t)),$t)))
TOOLS   := $(filter-out $(LEFT_OUT),$(if $(MPI),moe-sft,$(TOOLS)))
NEED_pcre2    := peft regex tok% chat% block engine lm lm_ranks lora model stories tables
NEED_utf8proc := tok% chat%
NEED_libpng   := image% picture% processor% resize% source tar png jpeg
NEED_libjpeg  := $(NEED_libpng)
NEED_zlib     := pickle png pth sae zip block engine lm lm_ranks lora model stories
without  = $(filter-out $(foreach t,$(LEFT_OUT),$1/$t-%) $(foreach l,$(LACKING),$(NEED_$l:%=$1/%)),$2)

# The end of a kernel's file name is its instruction set, a row of isa.def, and
# decides its flags; build/isa.mk has these, and the ISAS that this compiler and
# this assembler know.
# Before that and all else, make deps: what was missing may be what asking needs.
ifneq ($(filter deps deps-check,$(MAKECMDGOALS)),)
ifeq ($(findstring n,$(firstword -$(MAKEFLAGS)))$(MAKE_RESTARTS),)
$(if $(shell CC='$(CC)' CPPFLAGS='$(CPPFLAGS)' LDFLAGS='$(LDFLAGS)' sh scripts/deps.sh $(filter deps-check,$(MAKECMDGOALS)) >&2 || echo no),$(error deps has failed))
endif
endif
$(if $(shell command -v $(firstword $(CC)) 2>&1)$(filter clean uninstall fmt lint,$(MAKECMDGOALS)),,$(error there is no $(firstword $(CC)): make deps installs a C compiler))
-include $(B)/isa.mk
ISA_ALL := $(shell sed -n 's/^ISA[^,]*, \([a-z0-9]*\),.*/\1/p' core/kernel/isa.def)
# FAMILY_simd.c, over the vectors of core/kernel/simd.h, is compiled for each of
# VECTORS that has no FAMILY_ISA.c: FAMILY_simd_ISA.o.
VECTORS := $(filter avx2 avx512 neon,$(ISAS))
of_isas  = $(foreach i,$(ISAS),$(wildcard $1/*_$i.c))
families = $(patsubst %_$1.c,%,$(wildcard core/kernel/*_$1.c))
SIMD    := $(foreach i,$(VECTORS),$(patsubst %,%_simd_$i.c,$(filter-out $(call families,$i),$(call families,simd))))
KERNELS := $(call of_isas,core/kernel) $(SIMD)
CORE    := $(sort $(KERNELS) $(filter-out $(if $(call lacks,pcre2),%/regex.c) $(if $(call lacks,zlib),%/zip.c),$(wildcard core/*.c core/format/*.c)) \
             $(filter-out %_simd.c $(ISA_ALL:%=\%_%.c),$(wildcard core/kernel/*.c)))
MODEL   := $(filter-out %/ranks_mpi.c $(if $(call lacks,utf8proc),$(foreach f,added norm split,%/tok_$f.c)),$(sort $(wildcard core/model/*.c core/model/*/*.c core/text/*.c $(if $(no_pictures),,core/image/*.c))))
# No parser is among the kernels, and clang takes minutes to instrument them.
ifeq ($(SAN),fuzz)
$(B)/core/kernel/%.o: HARDEN :=
endif
# KERNEL(family, isa) for each FAMILY_ISA.c or FAMILY_simd_ISA.c of these.
kernel   = KERNEL($1,$2)
tables   = -D'KERNELS=$(foreach i,$(ISAS),$(patsubst %_$i.c,$(call kernel,%,$i),$(filter %_$i.c,$(subst _simd_,_,$(notdir $1)))))'
$(B)/core/kernel/cpu.o $(B)/core/kernel/dispatch.o: ISA_FLAGS = $(call tables,$(KERNELS))
# Loops over a row of a picture, unrolled, and of floats as vectors.
$(B)/core/image/resize.o: ISA_FLAGS := -O3
# Rows of numbers to codes, as vectors.
$(B)/core/kernel/encode_%.o: ISA_FLAGS += -O3
# AdamW as vectors: a square root that sets errno cannot be one.
$(B)/core/model/train/adamw.o $(B)/core/model/train/loss.o: ISA_FLAGS := -O3 -fno-math-errno

all: $(TOOLS:%=$(TOOLDIR)/%) lib
ifneq ($(LEFT_OUT),)
all:
	@echo 'left out: $(LEFT_OUT) (no $(filter $(foreach t,$(LEFT_OUT),$(NEEDS_$t)),$(LACKING)) here: see make deps)' >&2
endif

$(B)/isa.mk: scripts/isa.sh core/kernel/isa.def
	@mkdir -p $(@D)
	@CC='$(CC)' sh scripts/isa.sh >$@

# Asked again while something is lacking.
$(B)/libs.mk: scripts/libs.sh $(if $(LACKING),$(if $(MAKE_RESTARTS),,FORCE))
	@mkdir -p $(@D)
	@CC='$(CC)' CPPFLAGS='$(CPPFLAGS)' sh scripts/libs.sh >$@

compile  = $(CC) $(FLAGS) $(ISA_FLAGS) -MMD -MP -c $< -o $@
$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$Q$(compile)
define simd
$(B)/%_simd_$1.o: %_simd.c $(B)/flags
	@mkdir -p $$(@D)
	$$Q$$(compile) -DSIMD=$1
endef
$(foreach i,$(VECTORS),$(eval $(call simd,$i)))

ALL_NEED := $(filter jansson xxhash libcrypto,$(LACKING))
$(B)/flags $(B)/mpi/flags: FORCE
	@$(if $(ALL_NEED),echo 'every tool needs $(ALL_NEED): see make deps' >&2; exit 1)
	@mkdir -p $(@D); printf '%s\n' "$$W" | cmp -s - $@ || printf '%s\n' "$$W" >$@
$(B)/flags: export W = $(CC) $(FLAGS) $(KERNELS) $(LDFLAGS) $(call lacks,libedit)
$(B)/mpi/flags: export W = $(MPI_CFLAGS) $(MPI_LIBS)

# Numbers and files; what a transformer, its text and its pictures are.
LIBRARIES := $(B)/libmodel.a $(B)/libcore.a
$(B)/libcore.a: $(CORE:%.c=$(B)/%.o)
$(B)/libmodel.a: $(MODEL:%.c=$(B)/%.o)
$(LIBRARIES):
	$Qrm -f $@ && $(AR) rcsD $@ $^
	$(built)

tool_objs = $(patsubst %.c,$(B)/%.o,$(sort $(wildcard cmd/$1.c cmd/$1/*.c)))
# libedit, where it is: no node needs it, so that STATIC=half does without.
ifeq ($(STATIC)$(call lacks,libedit),)
$(B)/cmd/hf-infer/lines.o: ISA_FLAGS := -DLIBEDIT
LINK    += -ledit
else ifdef STATIC
tool_objs = $(patsubst %.c,$(B)/%.o,$(patsubst %/lines.c,half/%/lines.c,$(sort $(wildcard cmd/$1.c cmd/$1/*.c))))
$(B)/half/cmd/hf-infer/lines.o: cmd/hf-infer/lines.c $(B)/flags
	@mkdir -p $(@D)
	$Q$(compile)
endif
$(foreach t,$(TOOLS),$(eval $(TOOLDIR)/$t: $(call tool_objs,$t)))
# In place of the libraries' ranks.o, as it comes before them.
ifdef MPI
RANKS   := $(B)/core/model/train/ranks_mpi.o
$(RANKS): ISA_FLAGS := $(patsubst -I%,-isystem %,$(MPI_CFLAGS))
$(RANKS): $(B)/mpi/flags
endif
link     = $(CC) $(FLAGS) -pie -Wl,-z,relro,-z,now $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LINK)
$(TOOLS:%=$(TOOLDIR)/%): $(RANKS) $(LIBRARIES)
	@mkdir -p $(@D)
	$Q$(link)
	$(built)

demo: all
	@V='$(V)' sh scripts/demo/demo.sh $(TOOLDIR)

# For programs: all objects are made for both, so that the library is one link
# more; sanitized, the archive alone.  Not where tools are left out, nor for
# other nodes.
LIB_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard lib/*.c))
SONAME  := libtensorutils.so.$(firstword $(subst ., ,$(VERSION)))
LIB     := $(if $(filter fuzz cov,$(SAN))$(STATIC)$(MPI)$(LEFT_OUT)$(MACOS),,$(if $(LIB_OBJS),$(if $(SAN),,$(B)/libtensorutils.so.$(VERSION)) $(B)/libtensorutils.a))
lib: $(LIB)
$(B)/libtensorutils.so.$(VERSION): $(LIB_OBJS) $(LIBRARIES) lib/tensorutils.map
	$Q$(CC) $(FLAGS) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=lib/tensorutils.map \
	    -Wl,-z,defs,-z,relro,-z,now $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBRARIES) $(LIBS)
	$(built)
# One object, in which what is not for programs has no name.
$(B)/libtensorutils.a: $(LIB_OBJS) $(LIBRARIES)
	$Q$(CC) $(CFLAGS) $(if $(findstring -flto,$(CFLAGS)),-flinker-output=nolto-rel) -r -nostdlib -o $(B)/libtensorutils.o $^
	$Q$(OBJCOPY) --localize-hidden $(B)/libtensorutils.o
	$Qrm -f $@ && $(AR) rcsD $@ $(B)/libtensorutils.o
	$(built)

# Done above, before any other goal.
deps deps-check:
	@:

fmt:
	clang-format -i $$(git ls-files '*.[ch]')

# Reads, and builds nothing.
lint:
	clang-format --dry-run -Werror $$(git ls-files '*.[ch]')
	sh scripts/layers.sh
	sh scripts/rules.sh
	sh scripts/lines.sh
	sh scripts/headers.sh
	shellcheck .ci/run $$(git ls-files '*.sh')
	mandoc -Tlint -Wwarning man/*.[1-9]

install uninstall: export DESTDIR := $(DESTDIR)
$(foreach d,PREFIX BINDIR LIBDIR INCLUDEDIR DATADIR MANDIR BASHDIR ZSHDIR,$(eval install uninstall: export $d := $$($d)))
install uninstall: export LIB := $(LIB)
install: export LIBS := $(LIBS)
install: all
	@sh scripts/install.sh $(TOOLDIR) $(VERSION) $(TOOLS)

uninstall:
	@sh scripts/install.sh -u

# The pages, with pictures.
html: all
	@sh scripts/html.sh $(TOOLDIR) $(VERSION) $(B)/html

# tensorutils_VERSION_ARCH.deb, next to the tools.
deb: all
	@sh scripts/deb.sh $(TOOLDIR) $(VERSION)

# For pip: python/tensorutils.py and the library, without what debuggers ask.
wheel: $(B)/libtensorutils.so.$(VERSION)
	@$(STRIP) --strip-unneeded -o $(B)/wheel.so $<
	@TENSORUTILS_LIB='$(abspath $(B))/wheel.so' $(PYTHON) -B python/build_wheel.py $(B)

# What git has of the last commit: the same commit gives the same bytes.
dist:
	@mkdir -p build
	@git archive --format=tar --prefix=tensorutils-$(VERSION)/ HEAD >build/dist.tar
	@gzip -9nf build/dist.tar
	@mv build/dist.tar.gz build/tensorutils-$(VERSION).tar.gz
	@echo build/tensorutils-$(VERSION).tar.gz

clean:
	rm -rf build

include $(wildcard test/*.mk)

-include $(shell test -d $(B) && find $(B) -name '*.d')
.PHONY: all deb demo deps dist fmt html lib lint install uninstall wheel clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:
