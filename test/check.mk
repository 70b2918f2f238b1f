# SPDX-License-Identifier: ISC
# How the tests are built and run; the Makefile includes this file, and hard.mk,
# which has what takes longer.  test/README lists all of them.

UNIT    := $(call without,$(B)/test/unit,$(patsubst %.c,$(B)/%,$(wildcard test/unit/*.c)))
FUZZ    := $(call without,$(B)/test/fuzz,$(patsubst %.c,$(B)/%,$(wildcard test/fuzz/*.c)))

$(B)/test/bench/probe.o: ISA_FLAGS = $(call tables,$(call of_isas,test/bench))
# Benchmarks share the probes of the machine's limits.
BENCH   := $(patsubst %.c,$(B)/%,$(filter-out %/probe.c $(ISA_ALL:%=\%_%.c),$(wildcard test/bench/*.c)))
PROBES  := $(B)/test/bench/probe.o $(patsubst %.c,$(B)/%.o,$(call of_isas,test/bench))
BENCH   := $(call without,$(B)/test/bench,$(BENCH))
$(BENCH): $(PROBES)

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
# Where the compiler finds gold, it links in a third of the time.
GOLD     = $(eval GOLD := $(shell $(CC) -fuse-ld=gold -Wl,--version 2>/dev/null | sed -n '1s/.*gold.*/-fuse-ld=gold/p'))$(GOLD)
$(UNIT) $(BENCH) $(FUZZ): $(LIBRARIES)
	@mkdir -p $(@D)
	$Q$(link) $(GOLD)

# Shims that are preloaded, which no sanitizer likes.
FAULT   := $(if $(SAN),,$(patsubst %,$(B)/test/fault/%,shim.so netfs.so power.so run))
$(B)/test/fault/%.so: test/fault/%.c $(B)/flags
	@mkdir -p $(@D)
	$Q$(CC) $(FLAGS) -U_FORTIFY_SOURCE -fvisibility=default -MMD -MP -shared $(LDFLAGS) -o $@ $< -ldl
$(B)/test/fault/run: $(B)/test/fault/run.o $(B)/test/fault/tree.o
	$Q$(CC) $(FLAGS) -pie $(LDFLAGS) -o $@ $^

# Debian's python3 has numpy; another python3 may stand before it in PATH.
# The tests' Python, which starts faster; with no sanitizer.
WARM    := $(B)/test/warm/python
$(WARM): test/warm/python.c
	@mkdir -p $(@D)
	$Q$(CC) -std=c11 $(WARN) $(CPPFLAGS) -O2 -o $@ $<

# What their references have computed, for any build: test/unit/kept.sh.
KEPT    := build/kept

PYTHON  ?= $(shell for p in python3 /usr/bin/python3; do $$p -c 'import numpy' 2>/dev/null && { echo $$p; exit; }; done; echo python3)
TESTENV  = PATH=$(call quote,$(CURDIR)/$(TOOLDIR)):"$$PATH" PYTHON=$(call quote,$(PYTHON)) BUILD=$(call quote,$(CURDIR)/$B) WARM=$(call quote,$(CURDIR)/$(WARM)) KEPT=$(call quote,$(CURDIR)/$(KEPT)) LEFT_OUT='$(LEFT_OUT)'

# T=saev-read: the tests of one tool (from the command line alone: an
# environment may have a T); BATS="test/out.bats ..": some bats files.
ONLY    := $(if $(filter command%,$(origin T)),$T)
BATS    ?= $(if $(ONLY),$(wildcard $(ONLY:%=test/%.bats) $(ONLY:%=test/%-*.bats)),$(wildcard test/*.bats))
PAGES    = $(if $(ONLY),$(wildcard $(ONLY:%=man/%-*.1) $(ONLY:%=man/%.[1-9])),man/*.[1-9])
of_tool  = $(if $(ONLY),$(foreach f,$1,$(if $(filter $(ONLY:%=%-%),$(notdir $f)),$f)),$1)
check: all $(WARM) $(call of_tool,$(UNIT) $(FUZZ)) $(FAULT)
	$(if $(filter-out $(TOOLS),$(ONLY)),$(error T=$(ONLY) is none of $(TOOLS)))
	@$(TESTENV) sh scripts/check.sh $(call of_tool,$(UNIT) $(FUZZ)) $(BATS) $(PAGES)

# What takes long: the bats tests with the tag, and the unit tests with TU_WAYS.
LONG_UNITS = $(call without,$(B)/test/unit,$(patsubst %.c,$(B)/%,$(shell grep -ls tap_one_way test/unit/*.c)))
check-long: all $(WARM) $(LONG_UNITS) $(FAULT)
	@$(TESTENV) LONG=only sh scripts/check.sh $(LONG_UNITS) $$(grep -lE '^# bats (file|test)_tags=long$$' $(BATS))

# The tests that compute, which test/computes names, with TU_ISA as each that
# this machine has, or those of ISA=; BEST=no: but its best, as make check runs;
# PART=unit: the unit tests of them.
check-isa: all $(WARM) $(UNIT)
	@$(TESTENV) ISA='$(ISA)' BEST='$(BEST)' PART='$(PART)' sh scripts/check-isa.sh $(B)/test/unit

# The same bytes from all of them, and those that test/bits has.
check-bits: all
	@$(TESTENV) ISA='$(ISA)' sh scripts/check-bits.sh

bench: all $(BENCH)
	@$(TESTENV) PEERS='$(PEERS)' sh scripts/bench.sh

# What objects show: nothing is dead, and the benchmarks, which no other check
# builds, compile.
check-dead: all $(BENCH)
	sh scripts/dead.sh $(B)

.PHONY: bench check check-bits check-dead check-isa check-long
