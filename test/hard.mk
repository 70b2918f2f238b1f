# SPDX-License-Identifier: ISC
# The hard checks: minutes to hours each, and what they need is in test/README.
# The Makefile includes this file.

# Each call of libc that can fail does so, in one run after another: an hour.
check-faults: all $(FAULT)
	@$(TESTENV) sh scripts/faults.sh

# The same commands with too little memory, files or room, streams closed or
# full, inputs that change, clocks that jump, pipes and devices as files, and
# file systems that are no local disk.
check-limits: all $(FAULT)
	@$(TESTENV) sh scripts/limits.sh

SECONDS ?= 60

# Each parser under libFuzzer, ASan and UBSan: seeds in test/fuzz/NAME.seeds/.
# What it finds is in build/fuzz/NAME.found/.
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

# jobs on a real Slurm that SLURM_TOOLS=DIR starts and stops; skips
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
	@FAULT_FS=no-link $(TESTENV) bash scripts/kills.sh -p

# CROSS="s390x aarch64" picks platforms, PART="unit same formats kernels" what.
check-cross:
	@PYTHON='$(PYTHON)' PART='$(PART)' sh scripts/check-cross.sh $(CROSS)

# The same bits from clang, -O0, -O3 and link-time optimization; musl compiles;
# the tests where a library is missing that only some tools need ("without").
# COMPILERS="clang musl" picks some.
check-compilers:
	@PYTHON='$(PYTHON)' sh scripts/check-compilers.sh $(COMPILERS)

# What takes minutes: two builds that may not differ in a bit.
check-install: all
	@$(TESTENV) SLOW=1 bats test/install.bats

# Screening's bound on 100 million pairs of rows, by each instruction set.
check-screen: $(B)/test/unit/screen $(B)/test/unit/screen_over
	@for i in $(filter-out scalar,$(ISAS)); do echo "# $$i"; TU_ISA=$$i $< 100000000 && TU_ISA=$$i $<_over large || exit; done

.PHONY: check-compilers check-cross check-faults check-install check-kills \
        check-limits check-power check-screen check-slurm coverage \
        coverage-run fuzz
