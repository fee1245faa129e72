"""A small Llama for the common tests of Transformers, whose own list of inputs isn't in its source
package.

The numbers are those of their causal_lm_tester.py: two layers of two heads, width 32, and seven
tokens."""

import unittest

import torch
from tests.test_modeling_common import ModelTesterMixin, ids_tensor
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel


class Inputs:
    batch_size, seq_length, hidden_size, num_hidden_layers, num_attention_heads, vocab_size = (
        13,
        7,
        32,
        2,
        2,
        99,
    )
    is_training = True

    def get_config(self):
        return LlamaConfig(
            vocab_size=99,
            hidden_size=32,
            intermediate_size=37,
            num_hidden_layers=2,
            pad_token_id=0,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=512,
        )

    def prepare_config_and_inputs_for_common(self):
        ids = ids_tensor([self.batch_size, self.seq_length], self.vocab_size)
        return self.get_config(), {
            "input_ids": ids,
            "attention_mask": torch.tril(torch.ones_like(ids)),
        }


class LlamaTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (LlamaModel, LlamaForCausalLM)

    def setUp(self):
        self.model_tester = Inputs()
