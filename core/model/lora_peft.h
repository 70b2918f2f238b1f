/*
 * Adapters as PEFT saves them: a directory of adapter_config.json and
 * adapter_model.safetensors.
 * Source: Hugging Face peft, LoraConfig and what save_pretrained() writes.
 */
#ifndef CORE_MODEL_LORA_PEFT_H
#define CORE_MODEL_LORA_PEFT_H

#include "core/err.h"

struct adapter;
struct model;

/* lora_peft() binds all tensors of a PEFT directory. */
int lora_peft(struct model *model, struct adapter *adapter, const char *dir,
              struct err *err);

#endif
