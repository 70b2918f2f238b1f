# tensorutils: GNU make, one file, no configure.
#   make deps       install what is missing       make            build/TOOL for every tool
#   make demo       the main job, explained       make check      unit tests, bats, man pages
#   make V=1 ...    every command, not a line for each tool
#   make lint       format, layers, names, sizes  make bench      a table of measurements (PEERS=1: others' too)
#   make fuzz       SECONDS=60 for each parser    make check-cross  the tests under qemu
#   make check-slurm  the job scripts on a Slurm  make check-kills  kill -9 at each step of every writer
#   make check-power  what a power cut may leave   make check-faults  each call of libc that can fail, failing
#   make check-limits  too little of everything, files that change
#   make check-compilers  the same bits by all   make check-dead  nothing is, and the benchmarks compile
#   make check-isa  what computes, by each instruction set here, or ISA="scalar avx2"
#   make coverage   which lines of core the tests reach
#   make install    DESTDIR= PREFIX=/usr/local    make SAN=1 ...  (or SAN=thread) sanitized, beside the normal build
#   make uninstall  what install put there        make STATIC=half  only libc is left to the node that runs it
#   make deb        a Debian package              make check-install  two builds, the same bits
VERSION := 0.1
PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
MANDIR  ?= $(DATADIR)/man
BASHDIR ?= $(DATADIR)/bash-completion/completions
ZSHDIR  ?= $(DATADIR)/zsh/site-functions
SECONDS ?= 60

# One line for each library and tool, none with -s; V=1 shows all commands.
Q       := $(if $(V),,@)
built    = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),,@echo 'built $@')

CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
           -Wcast-qual -Wwrite-strings -Wformat=2 -Wundef -Wconversion -Wno-sign-conversion
HARDEN  := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIE
B       := build
ifeq ($(SAN),thread)
B       := build/tsan
HARDEN  := -fPIE -fsanitize=thread -fno-omit-frame-pointer
else ifeq ($(SAN),fuzz)
B       := build/fuzz
CC      := clang
HARDEN  := -fPIE -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined -fno-omit-frame-pointer
else ifeq ($(SAN),cov)
B       := build/cov
HARDEN  := -fPIE --coverage -fprofile-update=single
CFLAGS  := -O1 -g
else ifdef SAN
B       := build/san
HARDEN  := -fPIE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif
# A word of the shell's, whatever folder this is.
quote    = '$(subst ','\'',$1)'
# Results must not depend on the compiler: fma only where the source says so.
# Binaries must not depend on the folder they were built in.
# (s390x alone computes float as double in ISO C: gcc's FLT_EVAL_METHOD is 1.)
EXCESS  := $(if $(findstring s390,$(shell $(CC) -dumpmachine 2>&1)),-fexcess-precision=fast)
FLAGS    = -std=c11 -ffp-contract=off $(EXCESS) -pthread $(call quote,-ffile-prefix-map=$(CURDIR)=.) $(HARDEN) $(WARN) \
           -I. -D_GNU_SOURCE -DVERSION='"$(VERSION)"' $(CPPFLAGS) $(CFLAGS)
# Each tool is linked with those that it needs.
LIBS     = -Wl,--as-needed -ljansson -lxxhash -lcrypto $(if $(call lacks,pcre2),,-lpcre2-8) \
           $(if $(call lacks,utf8proc),,-lutf8proc) $(if $(call lacks,zlib),,-lz) -lm
lacks    = $(filter $1,$(LACKING))
# The tools are in $(B); with STATIC=half, of the same objects, in $(B)/half.
ifeq ($(STATIC),half)
T       := $(B)/half
LINK     = -static-libgcc -Wl,-Bstatic $(filter-out -lm,$(LIBS)) -Wl,-Bdynamic -lm -ldl
else ifdef STATIC
$(error STATIC is half, or not given)
else
T       := $(B)
LINK     = $(LIBS)
endif

# A tool is cmd/TOOL.c, or every file of cmd/TOOL/. A test or benchmark is one
# file; it may be of a tool's own code, which its name then begins with.
TOOLS   := $(sort $(basename $(notdir $(wildcard cmd/*.c))) \
             $(foreach d,$(wildcard cmd/*/main.c),$(notdir $(patsubst %/main.c,%,$d))))
# build/libs.mk says which libraries are LACKING: a tool that needs one of
# them, as not all do, is left out, with its tests in C; and so are the tests
# and the files of the libraries that need it.
NEEDS_hf-infer    := pcre2 utf8proc
NEEDS_moe-sft     := pcre2
NEEDS_kvc-convert := zlib
-include $(B)/libs.mk
LEFT_OUT := $(strip $(foreach t,$(TOOLS),$(if $(filter $(LACKING),$(NEEDS_$t)),$t)))
TOOLS   := $(filter-out $(LEFT_OUT),$(TOOLS))
NEED_pcre2    := peft regex tok% chat block engine lora model stories tables
NEED_utf8proc := tok% chat
without  = $(filter-out $(foreach t,$(LEFT_OUT),$1/$t-%) $(foreach l,$(LACKING),$(NEED_$l:%=$1/%)),$2)
UNIT    := $(call without,$(B)/test/unit,$(patsubst %.c,$(B)/%,$(wildcard test/unit/*.c)))
FUZZ    := $(call without,$(B)/test/fuzz,$(patsubst %.c,$(B)/%,$(wildcard test/fuzz/*.c)))

# The end of a kernel's file name is its instruction set, a row of isa.def, and
# decides its flags; build/isa.mk has these, and the ISAS that this compiler and
# this assembler know.
# Before that and all else, make deps: what was missing may be what asking needs.
ifneq ($(filter deps,$(MAKECMDGOALS)),)
ifeq ($(findstring n,$(firstword -$(MAKEFLAGS)))$(MAKE_RESTARTS),)
$(if $(shell CC='$(CC)' CPPFLAGS='$(CPPFLAGS)' LDFLAGS='$(LDFLAGS)' sh scripts/deps.sh >&2 || echo no),$(error deps has failed))
endif
endif
-include $(B)/isa.mk
ISA_ALL := $(shell sed -n 's/^ISA[^,]*, \([a-z0-9]*\),.*/\1/p' core/kernel/isa.def)
of_isas  = $(foreach i,$(ISAS),$(wildcard $1/*_$i.c))
KERNELS := $(call of_isas,core/kernel)
CORE    := $(sort $(KERNELS) $(filter-out $(if $(call lacks,pcre2),%/regex.c),$(wildcard core/*.c core/format/*.c)) \
             $(filter-out $(ISA_ALL:%=\%_%.c),$(wildcard core/kernel/*.c)))
MODEL   := $(filter-out $(if $(call lacks,utf8proc),%/tok_norm.c),$(sort $(wildcard core/model/*.c core/model/*/*.c core/text/*.c)))
# No parser is among the kernels, and clang takes minutes to instrument them.
ifeq ($(SAN),fuzz)
$(B)/core/kernel/%.o: HARDEN := -fPIE
endif
# KERNEL(family, isa) for each FAMILY_ISA.c of a folder.
kernel   = KERNEL($1,$2)
tables   = -D'KERNELS=$(foreach i,$(ISAS),$(patsubst $1/%_$i.c,$(call kernel,%,$i),$(wildcard $1/*_$i.c)))'
$(B)/core/kernel/cpu.o $(B)/core/kernel/dispatch.o: ISA_FLAGS = $(call tables,core/kernel)
$(B)/test/bench/probe.o: ISA_FLAGS = $(call tables,test/bench)
# AdamW as vectors: a square root that sets errno cannot be one.
$(B)/core/model/train/adamw.o $(B)/core/model/train/loss.o: ISA_FLAGS := -O3 -fno-math-errno

all: $(TOOLS:%=$(T)/%)
ifneq ($(LEFT_OUT),)
all:
	@echo 'left out: $(LEFT_OUT) (no $(filter $(foreach t,$(LEFT_OUT),$(NEEDS_$t)),$(LACKING)) here: see make deps)' >&2
endif

# Benchmarks share the probes of the machine's limits.
BENCH   := $(patsubst %.c,$(B)/%,$(filter-out %/probe.c $(ISA_ALL:%=\%_%.c),$(wildcard test/bench/*.c)))
PROBES  := $(B)/test/bench/probe.o $(patsubst %.c,$(B)/%.o,$(call of_isas,test/bench))
BENCH   := $(call without,$(B)/test/bench,$(BENCH))
$(BENCH): $(PROBES)

$(B)/isa.mk: scripts/isa.sh core/kernel/isa.def
	@mkdir -p $(@D)
	@CC='$(CC)' sh scripts/isa.sh >$@

# Asked again while something is lacking.
$(B)/libs.mk: scripts/libs.sh $(if $(LACKING),$(if $(MAKE_RESTARTS),,FORCE))
	@mkdir -p $(@D)
	@CC='$(CC)' CPPFLAGS='$(CPPFLAGS)' sh scripts/libs.sh >$@

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$Q$(CC) $(FLAGS) $(ISA_FLAGS) -MMD -MP -c $< -o $@

ALL_NEED := $(filter jansson xxhash libcrypto,$(LACKING))
$(B)/flags: FORCE
	@$(if $(ALL_NEED),echo 'every tool needs $(ALL_NEED): see make deps' >&2; exit 1)
	@mkdir -p $(@D); printf '%s\n' "$$W" | cmp -s - $@ || printf '%s\n' "$$W" >$@
$(B)/flags: export W = $(CC) $(FLAGS) $(KERNELS) $(LDFLAGS)

# Numbers and files; what a transformer and its text are.
LIBRARIES := $(B)/libmodel.a $(B)/libcore.a
$(B)/libcore.a: $(CORE:%.c=$(B)/%.o)
$(B)/libmodel.a: $(MODEL:%.c=$(B)/%.o)
$(LIBRARIES):
	$Qrm -f $@ && $(AR) rcsD $@ $^
	$(built)

tool_objs = $(patsubst %.c,$(B)/%.o,$(sort $(wildcard cmd/$1.c cmd/$1/*.c)))
$(foreach t,$(TOOLS),$(eval $(T)/$t: $(call tool_objs,$t)))
# test/*/TOOL-SUBJECT.c is linked with the tool's objects but main.
$(foreach t,$(UNIT) $(BENCH) $(FUZZ),$(eval $t: $t.o))
$(foreach t,$(UNIT) $(BENCH) $(FUZZ),$(foreach c,$(sort $(basename $(notdir $(wildcard cmd/*)))),$(if $(filter $c-%,$(notdir $t)),\
  $(eval $t: $(filter-out %/main.o,$(call tool_objs,$c))))))
# Without libFuzzer a fuzzer runs its seeds.
ifeq ($(SAN),fuzz)
$(FUZZ): override LDFLAGS += -fsanitize=fuzzer
else
$(FUZZ): $(B)/test/replay.o
endif
$(TOOLS:%=$(T)/%) $(UNIT) $(BENCH) $(FUZZ): $(LIBRARIES)
	@mkdir -p $(@D)
	$Q$(CC) $(FLAGS) -pie -Wl,-z,relro,-z,now $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LINK)
	$(if $(filter $(TOOLS:%=$(T)/%),$@),$(built))

# Shims that are preloaded, which no sanitizer likes.
FAULT   := $(if $(SAN),,$(patsubst %,$(B)/test/fault/%,shim.so netfs.so power.so run))
$(B)/test/fault/%.so: test/fault/%.c $(B)/flags
	@mkdir -p $(@D)
	$Q$(CC) $(FLAGS) -U_FORTIFY_SOURCE -fPIC -MMD -MP -shared $(LDFLAGS) -o $@ $< -ldl
$(B)/test/fault/run: $(B)/test/fault/run.o $(B)/test/fault/tree.o
	$Q$(CC) $(FLAGS) -pie $(LDFLAGS) -o $@ $^

# Debian's python3 has numpy; another python3 may stand before it in PATH.
PYTHON  ?= $(shell for p in python3 /usr/bin/python3; do $$p -c 'import numpy' 2>/dev/null && { echo $$p; exit; }; done; echo python3)
TESTENV  = PATH=$(call quote,$(CURDIR)/$T):"$$PATH" PYTHON=$(call quote,$(PYTHON)) BUILD=$(call quote,$(CURDIR)/$B) LEFT_OUT='$(LEFT_OUT)'

# BATS="test/st-inspect.bats .." of test/*.bats.
BATS    ?= $(wildcard test/*.bats)
check: all $(UNIT) $(FAULT) $(FUZZ)
	@$(TESTENV) sh scripts/check.sh $(UNIT) $(FUZZ) $(BATS) man/*.[1-9]

# The tests that compute, which test/computes names, with TU_ISA as each that
# this machine has, or those of ISA=; BEST=no: but its best, as make check runs.
check-isa: all $(UNIT)
	@$(TESTENV) ISA='$(ISA)' BEST='$(BEST)' sh scripts/check-isa.sh $(B)/test/unit

# Each call of libc that can fail does so, in one run after another: an hour.
check-faults: all $(FAULT)
	@$(TESTENV) sh scripts/faults.sh

# The same commands with too little memory, files or room, streams closed or
# full, inputs that change, clocks that jump, pipes and devices as files, and
# file systems that are no local disk.
check-limits: all $(FAULT)
	@$(TESTENV) sh scripts/limits.sh

demo: all
	@sh scripts/demo/demo.sh $(T)

bench: all $(BENCH)
	@$(TESTENV) PEERS='$(PEERS)' sh scripts/bench.sh

# Each parser under libFuzzer, ASan and UBSan: seeds in test/fuzz/NAME.seeds/.
# What it finds lies in build/fuzz/NAME.found/.
fuzz: $(patsubst test/fuzz/%.c,fuzz-%,$(wildcard test/fuzz/*.c))
fuzz-%: FORCE
	@sh scripts/fuzz.sh $* $(SECONDS)

# Which lines of core the tests reach: unit tests, the seeds of the fuzzers, and
# bats but those that build, kill, or make calls fail.
COVER_MIN  ?= 90
COVER_BATS ?= $(filter-out $(patsubst %,test/%.bats,batch big build checks fault install kills limits man),$(wildcard test/*.bats))
coverage:
	@if command -v gcovr >/dev/null; then $(MAKE) SAN=cov coverage-run; \
	else echo 'coverage: gcovr is not installed, skipped (Debian: gcovr)'; fi
coverage-run: all $(UNIT) $(FUZZ)
	@$(TESTENV) sh scripts/coverage.sh $(COVER_MIN) $(UNIT) $(FUZZ) $(COVER_BATS)

# scripts/jobs on a real Slurm that SLURM_TOOLS=DIR starts and stops; skips
# where there is none: test/slurm/helpers.bash.
check-slurm: all
	@$(TESTENV) bats test/slurm

# Every writer killed with -9 at each system call that changes a file, and at
# random; with SECONDS= a choice of them, again and again.
check-kills: all
	@$(TESTENV) bash scripts/kills.sh $(if $(filter command,$(origin SECONDS)),-s $(SECONDS))

# The disk after a power cut at each step of every writer, made from a log of
# what it wrote and synced.
check-power: all $(FAULT)
	@$(TESTENV) bash scripts/kills.sh -p
	@FAULT_FS='no-exchange no-link' $(TESTENV) bash scripts/kills.sh -p

# CROSS="s390x aarch64" picks platforms, PART="unit same formats kernels" what.
check-cross:
	@PYTHON='$(PYTHON)' PART='$(PART)' sh scripts/check-cross.sh $(CROSS)

# The same bits from clang, -O0, -O3 and link-time optimization; musl compiles;
# the tests where a library lacks that some tools alone need ("without").
# COMPILERS="clang musl" picks some.
check-compilers:
	@PYTHON='$(PYTHON)' sh scripts/check-compilers.sh $(COMPILERS)

# Done above, before any other goal.
deps:
	@:

fmt:
	clang-format -i $$(git ls-files '*.[ch]')

# Reads, and builds nothing.
lint:
	clang-format --dry-run -Werror $$(git ls-files '*.[ch]')
	sh scripts/layers.sh
	sh scripts/rules.sh
	sh scripts/headers.sh
	shellcheck .ci/run $$(git ls-files '*.sh')
	mandoc -Tlint -Wwarning man/*.[1-9]

# What objects tell: nothing is dead, and the benchmarks, which no other check
# builds, compile.
check-dead: all $(BENCH)
	sh scripts/dead.sh $(B)

install uninstall: export DESTDIR := $(DESTDIR)
$(foreach d,PREFIX BINDIR DATADIR MANDIR BASHDIR ZSHDIR,$(eval install uninstall: export $d := $$($d)))
install: all
	@sh scripts/install.sh $(T) $(VERSION) $(TOOLS)

uninstall:
	@sh scripts/install.sh -u

# tensorutils_VERSION_ARCH.deb, beside the tools.
deb: all
	@sh scripts/deb.sh $(T) $(VERSION)

# What takes minutes: two builds that may not differ in a bit.
check-install: all
	@$(TESTENV) SLOW=1 bats test/install.bats
.PHONY: uninstall deb check-install

clean:
	rm -rf build

-include $(shell test -d $(B) && find $(B) -name '*.d')
.PHONY: all check check-dead coverage coverage-run demo bench fuzz check-compilers check-cross check-faults check-isa check-kills check-limits check-power check-slurm deps fmt lint install clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:
