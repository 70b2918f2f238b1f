# SPDX-License-Identifier: ISC
# The story of tensorutils(7) as a batch, in an empty directory, for GNU make:
#
#   make -f ~/.local/share/tensorutils/batch.mk -j4 MODEL=~/Qwen3-0.6B \
#       TEXT=~/held-out.txt DOCS=~/docs.jsonl SPEC=layers.13.mlp.up_proj CTX=512 \
#       SAE_OPTIONS='-k 64 --expansion 8'
#
# Whatever ends it, kill -9, too: the same line continues, does nothing twice and
# leaves nothing half.  Every tool writes its file whole or not at all, and what
# takes long (activations, tables, training) keeps what is complete.  In the end
# nll.tsv says how likely MODEL finds TEXT as it is, on tables, with a compressed
# cache, and MOE with an adapter.
#
# Documents or a model that have changed make another dump, as its metadata have
# their checksums; the old one stays in acts/.
#
# What there is to do, each a part that may be left out:
#   DOCS     documents, one JSON object a line: the activations of SPEC, in
#            windows of CTX tokens, padded with zeros, become the dump of which
#            the file "dump" has the name; with CTX=images, DOCS is a list of
#            pictures, a path a line, for the vision encoder MODEL, TEXT is not
#            needed, and the dump is all
#   SAE_OPTIONS  options of sae-train, which makes an autoencoder of the dump,
#            sae/HOOK; HOOK is SPEC, unless that is a short form as in:up_proj:13
#   TRAINER  or a command that reads rows of f32 and writes one into the
#            directory that is its last argument
#   SAE      or a directory of autoencoders that are there: tables in lut/
#   LOOK_OPTIONS  options of sae-look scan, as --per sequence: what the latents of
#            SAE/HOOK do in the dump becomes look/ and a page, latents.html
#   PTH      a checkpoint of a compressor, with KVC_OPTIONS of kvc-convert
#   MOE      a model of which layer LAYER's experts learn to do what TEACHER's
#            do on DOCS, with LORA_OPTIONS of init, TRAIN_OPTIONS of train
# and PARTS of dump and tables that -j makes side by side, THREADS of each task.
#
# TRAINER and all *_OPTIONS are words of a shell command.  All others are names and
# numbers as they are, whatever characters they have: "$" is one, too.  Make has
# no names that begin with a space or hold a newline.
PARTS         ?= 4
THREADS       ?= 1
CTX           ?= 512
RATIO         ?= 0.25
LAYER         ?= 0
TRAIN_OPTIONS ?= -n 1000 --schedule cosine --shuffle

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
define newline


endef
quote = '$(subst ','\'',$1)'

# Recipes find in the environment what the user says, and quote it there; rules
# never name it.  What came from outside is not expanded, once and for all.
PATHS := MODEL TEXT DOCS SAE PTH MOE TEACHER ACTS_META
WORDS := SPEC HOOK CTX RATIO LAYER THREADS PARTS
export $(PATHS) $(WORDS)
$(foreach v,$(PATHS) $(WORDS),$(if $(filter command environment,$(firstword $(origin $v))),\
    $(eval override $v := $$(value $v))))
$(foreach v,$(PATHS) $(WORDS),$(if $(findstring $(newline),$($v)),\
    $(error $v: has a newline, which make cannot carry)))
# As the shell would have it that reads ~ in no argument; no name is an option.
whole = $(shell p=$(call quote,$($1)); case $$p in ('~'/*) p=~/$${p:2} ;; (-*) p=./$$p ;; esac; printf %s "$$p")
$(foreach v,$(PATHS),$(if $($v),$(eval override $v := $$(call whole,$v))))

comma := ,
HOOK := $(if $(HOOK),$(HOOK),$(if $(findstring :,$(SPEC))$(findstring $(comma),$(SPEC)),,$(SPEC)))

# Pictures become a dump, and no more.
ifeq ($(CTX),images)
.DEFAULT_GOAL := dump
override TEXT := $(DOCS)
endif
ifeq ($(and $(MODEL),$(TEXT)),)
$(error MODEL and TEXT are needed: see the first lines of batch.mk)
endif
# $(call needs,PART,VARIABLE...): no part without what it is made of.
needs = $(if $($1),$(foreach v,$2,$(if $($v),,\
    $(error $1 needs $v: see the first lines of batch.mk))))
$(call needs,DOCS,SPEC)
$(call needs,TRAINER,DOCS HOOK)
$(call needs,SAE_OPTIONS,DOCS HOOK)
$(call needs,LOOK_OPTIONS,DOCS HOOK $(if $(SAE_OPTIONS)$(TRAINER),,SAE))
$(call needs,MOE,DOCS TEACHER)
# This file's directory, with a space in its path or not.
HERE      := $(shell p=$$(sed 's/^ *//; s/ *$$//' <<<$(call quote,$(MAKEFILE_LIST))); [[ -e $$p ]] || p=$(call quote,$(lastword $(MAKEFILE_LIST))); cd "$$(dirname "$$p")" && pwd)
# Tools of TU_BIN come first, then those installed with this file.
export PATH := $(if $(TU_BIN),$(TU_BIN):)$(if $(wildcard $(subst $() ,\ ,$(HERE))/../../share/tensorutils/.),$(HERE)/../../bin:)$(PATH)
ACTS_META := $(HERE)/acts-meta.sh
$(if $(DOCS),$(if $(shell [[ -e $(call quote,$(ACTS_META)) ]] && echo yes),,$(error acts-meta.sh is not next to batch.mk in $(HERE))))
I         := $(shell p=$(call quote,$(PARTS)); [[ $$p =~ ^[1-9][0-9]{0,3}$$ ]] && seq 0 $$((p - 1)))
$(if $I,,$(error PARTS is $(PARTS) (expected 1 to 9999)))
J         := -j "$$THREADS"
put        = rm -f .$@.*; printf '%s\n' $1 >.$@.$$$$; mv .$@.$$$$ $@
NLL        = hf-infer $J -qf -o $@ --nll --json --file "$$TEXT"

# inputs/NAME lists the files of $(NAME), their sizes and times.  It is written
# only when they change, so that it is what depends on them depends on.
one_file   = stat -L --printf '%.Y\t%s\t%n\n' -- $(call quote,$($1))
many_files = printf '%s\n' $(call quote,$($1)); find -L $(call quote,$($1))/. $2 -printf '%T@\t%s\t%P\0' | \
    sort -z | tr '\0' '\n'
note       = $(shell there=$$($2) && mkdir -p inputs && rm -f inputs/.$1 && \
    { [ "$$there" = "$$(cat inputs/$1 2>/dev/null)" ] || \
        { printf '%s\n' "$$there" >inputs/.$1 && mv inputs/.$1 inputs/$1; }; })$(if \
    $(filter-out 0,$(.SHELLSTATUS)),$(error $1 is $($1), which cannot be read))
$(call note,MODEL,$(call many_files,MODEL,-maxdepth 1 \( -name '*.json' -o -name '*.safetensors' \)))
$(foreach v,TEXT DOCS PTH,$(if $($v),$(call note,$v,$(call one_file,$v))))

NLLS := dense.json
ifdef SAE_OPTIONS
override SAE := sae
else ifdef TRAINER
override SAE := sae
else ifdef SAE
$(call note,SAE,$(call many_files,SAE,-maxdepth 3 -type f))
endif
ifdef SAE
NLLS += lut.json lut-ratio.json
endif
ifdef PTH
NLLS += kvc.json
endif
ifdef MOE
NLLS += teacher.json moe.json lora.json
endif

nll.tsv: $(NLLS)
	rows=$$(for f in $(NLLS); do \
	    printf '%s\t%s\n' "$${f%.json}" "$$(sed 's/.*"nll_mean":\([^,]*\),.*/\1/' "$$f")"; \
	done); $(call put,"$$rows")

# Is it whole?  Everything else waits for that.
hashes: inputs/MODEL
	st-inspect verify "$$MODEL"
	st-inspect hash $J --sha256 "$$MODEL" -f -o $@

dense.json: hashes inputs/TEXT
	$(NLL) "$$MODEL"

# ---- activations: parts, then the dump ----

ifdef DOCS
nll.tsv: dump
endif
done:
	mkdir -p $@

meta.json: hashes inputs/DOCS
	rm -rf .meta .$@ && mkdir .meta
	meta=$$("$$ACTS_META" "$$MODEL" "$$DOCS" "$$SPEC" "$$CTX" .meta); mv "$$meta" .$@
	rmdir .meta && mv .$@ $@

DUMPS := $(I:%=done/acts-%-of-$(PARTS))
$(DUMPS): done/acts-%-of-$(PARTS): meta.json | done
	shard=(-q -m meta.json -o acts --shard $*/$(PARTS)); \
	images=$$(saev-write --images "$${shard[@]}"); \
	read -r first n <<<"$$images"; \
	[ $$n = 0 ] || sed -n "$$((first + 1)),$$((first + n))p;$$((first + n))q" "$$DOCS" | \
	    hf-infer "$$MODEL" $J --acts "$$SPEC" $(if $(filter images,$(CTX)),--images -,--ctx "$$CTX" --pad --jsonl) -q | \
	    saev-write --first $$first "$${shard[@]}"
	touch $@

dump: $(DUMPS)
	"$${ACTS_META%/*}/acts-ids.sh" "$$MODEL" "$$DOCS" "$$CTX" meta.json
	path=$$(saev-write -q --finish --manifest --if-missing -m meta.json -o acts); $(call put,"$$path")

# ---- an autoencoder, and tables ----

# A trainer may have enough before the rows end, and its own status says so.
enough = [ $$? = 141 ]

# What the directory has of a run on another dump goes.
ifdef SAE_OPTIONS
trained := done/sae
done/sae: dump | done
	cmp -s dump sae.dump || { rm -rf sae; cp dump sae.dump; }
	mkdir -p sae
	saev-read --imgs 0-0 "$$(cat dump)" >/dev/null # warns of several layers
	{ saev-read -q --shuffle --seed 1 "$$(cat dump)" || $(enough); } | \
	    sae-train $J -q -o "sae/$$HOOK" --resume --any-isa --hook "$$HOOK" $(SAE_OPTIONS)
	[ -e "sae/$$HOOK/sae.safetensors" ] || [ -e "sae/$$HOOK/sae_weights.safetensors" ]
	touch $@
else ifdef TRAINER
trained := sae
sae: dump
	rm -rf $@.tmp
	{ saev-read --shuffle --seed 1 --raw "$$(cat dump)" || $(enough); } | $(TRAINER) "$@.tmp/$$HOOK"
	rm -rf $@ && mv $@.tmp $@
else
trained := inputs/SAE
endif

LUTS := $(I:%=done/lut-%-of-$(PARTS))
$(LUTS): done/lut-%-of-$(PARTS): hashes $(trained) | done
	lut-precompute $J -q -m "$$MODEL" -s "$$SAE" -o lut --shard $*/$(PARTS) --resume -f $(LUT_OPTIONS)
	touch $@

lut/metadata.json: $(LUTS)
	lut-precompute $J -q --index lut

lut.json: lut/metadata.json inputs/TEXT
	$(NLL) "$$MODEL" --lut lut
lut-ratio.json: lut/metadata.json inputs/TEXT
	$(NLL) "$$MODEL" --lut lut --ratio "$$RATIO"

# ---- what an autoencoder's latents do in the dump ----

ifdef LOOK_OPTIONS
nll.tsv: latents.html
endif
# Inputs of linear layers have no direction in the logits.
done/look: dump hashes $(trained) | done
	sae-look scan $J -q -f -s "$$SAE/$$HOOK" -o look $(LOOK_OPTIONS) "$$(cat dump)"
	sae-look lens $J -q -f -s "$$SAE/$$HOOK" -m "$$MODEL" -o look || [ $$? = 65 ]
	touch $@
latents.html: done/look
	sae-look html -q -f -m "$$MODEL" --sort max -n 200 -o $@ look

# ---- a shorter cache ----

c.bin: inputs/PTH
	kvc-convert --input "$$PTH" --output $@ -f $(KVC_OPTIONS)

kvc.json: c.bin hashes inputs/TEXT
	$(NLL) "$$MODEL" --kvc c.bin

# ---- experts ----

moe.acts = hf-infer "$$TEACHER" $J -qf -o $@ --ctx "$$CTX" --jsonl --file "$$DOCS" --acts
in.npy: inputs/DOCS
	$(moe.acts) "in:gate_proj:$$LAYER"
out.npy: inputs/DOCS
	$(moe.acts) "mlp:$$LAYER"

lora.safetensors:
	moe-sft init -b "$$MOE" --layer "$$LAYER" -f -o $@ $(LORA_OPTIONS)

# run/lora.safetensors is there from the first checkpoint on: the stamp says
# that all steps were done.
done/train: lora.safetensors in.npy out.npy | done
	moe-sft train $J -q -b "$$MOE" --layer "$$LAYER" -l $< -i in.npy --target out.npy \
	    -o run --log train.tsv --resume $(TRAIN_OPTIONS)
	touch $@

teacher.json: inputs/TEXT
	$(NLL) "$$TEACHER"
moe.json: inputs/TEXT
	$(NLL) "$$MOE"
lora.json: done/train inputs/TEXT
	$(NLL) "$$MOE" --lora run
