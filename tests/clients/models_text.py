"""Text models: paddlenlp."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.clients.cases import Net, case, floats, tokens

# --- paddlenlp ----------------------------------------------------------------------------

_TINY = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def transformers() -> Any:
    import paddlenlp.data  # noqa: F401 (the package's own order of imports)
    import paddlenlp.transformers as nlp

    return nlp


def _labelled(model: Any, ids: Any) -> Any:
    """The model's own loss of the same tokens, and its logits."""
    return model(ids, labels=ids)


def _first(paddle: Any, answer: Any) -> Any:
    return answer[0]


@case("paddlenlp", quick=True)
def bert() -> Net:
    nlp = transformers()
    config = nlp.BertConfig(**_TINY, num_labels=3)
    return Net(nlp.BertForSequenceClassification(config), tokens(99, 2, 13))


@case("paddlenlp")
def ernie() -> Net:
    nlp = transformers()
    config = nlp.ErnieConfig(**_TINY, num_labels=5)
    return Net(nlp.ErnieForTokenClassification(config), tokens(99, 2, 13))


@case("paddlenlp")
def gpt() -> Net:
    nlp = transformers()
    model = nlp.GPTForCausalLM(nlp.GPTConfig(**_TINY))
    return Net(model, tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp")
def llama() -> Net:
    nlp = transformers()
    config = nlp.LlamaConfig(**_TINY, num_key_value_heads=2, use_flash_attention=False)
    return Net(nlp.LlamaForCausalLM(config), tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp")
def t5() -> Net:
    nlp = transformers()
    config = nlp.T5Config(
        vocab_size=99,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        bos_token_id=0,
    )
    model = nlp.T5ForConditionalGeneration(config)
    return Net(model, tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp")
def electra() -> Net:
    nlp = transformers()
    config = nlp.ElectraConfig(**_TINY, embedding_size=24, num_labels=3)
    return Net(nlp.ElectraForSequenceClassification(config), tokens(99, 2, 13))


@case("paddlenlp")
def albert() -> Net:
    nlp = transformers()
    config = nlp.AlbertConfig(**_TINY, embedding_size=24, num_hidden_groups=1, inner_group_num=1)
    return Net(nlp.AlbertForSequenceClassification(config), tokens(99, 2, 13))


@case("paddlenlp")
def roberta() -> Net:
    nlp = transformers()
    config = nlp.RobertaConfig(**_TINY, num_labels=4)
    return Net(nlp.RobertaForTokenClassification(config), tokens(99, 2, 13))


@case("paddlenlp")
def bart() -> Net:
    nlp = transformers()
    config = nlp.BartConfig(
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0, max_position_embeddings=64,
        num_encoder_layers=2, num_decoder_layers=2,
    )  # fmt: skip
    model = nlp.BartForConditionalGeneration(config)
    return Net(model, tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp")
def pegasus() -> Net:
    nlp = transformers()
    config = nlp.PegasusConfig(
        vocab_size=99, d_model=32, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, max_position_embeddings=64, num_encoder_layers=2,
        num_decoder_layers=2,
    )  # fmt: skip
    model = nlp.PegasusForConditionalGeneration(config)
    return Net(model, tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp")
def opt() -> Net:
    nlp = transformers()
    config = nlp.OPTConfig(**_TINY, word_embed_proj_dim=32)
    return Net(nlp.OPTForCausalLM(config), tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp")
def bloom() -> Net:
    nlp = transformers()
    config = nlp.BloomConfig(vocab_size=99, hidden_size=32, n_layer=2, n_head=4)
    return Net(nlp.BloomForCausalLM(config), tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp")
def chatglm2() -> Net:
    nlp = transformers()
    config = nlp.ChatGLMv2Config(
        num_hidden_layers=2, vocab_size=99, padded_vocab_size=99, hidden_size=32, kv_channels=8,
        ffn_hidden_size=48, num_attention_heads=4, max_sequence_length=64,
    )  # fmt: skip
    return Net(nlp.ChatGLMv2ForCausalLM(config), tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp")
def qwen() -> Net:
    nlp = transformers()
    config = nlp.QWenConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, kv_channels=8,
        intermediate_size=64, max_position_embeddings=64, seq_length=64,
    )  # fmt: skip
    return Net(nlp.QWenForCausalLM(config), tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp", float32_only=True)
def xlnet() -> Net:
    nlp = transformers()
    config = nlp.XLNetConfig(
        vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=64, dropout=0.0,
        classifier_dropout=0.0, num_classes=3,
    )  # fmt: skip
    return Net(nlp.XLNetForSequenceClassification(config), tokens(99, 2, 13))


@case("paddlenlp")
def deberta_v2() -> Net:
    nlp = transformers()
    config = nlp.DebertaV2Config(**_TINY, position_buckets=8, num_labels=3)
    return Net(nlp.DebertaV2ForSequenceClassification(config), tokens(99, 2, 13))


@case("paddlenlp")
def clip() -> Net:
    nlp = transformers()
    parts = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "projection_dim": 16,
    }  # fmt: skip
    config = nlp.CLIPConfig(
        text_config={**parts, "vocab_size": 99, "max_position_embeddings": 20, "eos_token_id": 98},
        vision_config={**parts, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )

    def pairs(paddle: Any, rng: Any) -> Any:
        return paddle.to_tensor(rng.integers(1, 99, (3, 9))), floats(paddle, rng, 3, 3, 32, 32)

    def call(model: Any, pair: Any) -> Any:
        return model(input_ids=pair[0], pixel_values=pair[1], return_loss=True, return_dict=False)

    return Net(nlp.CLIPModel(config), pairs, call, _first)


@case("paddlenlp")
def layoutlm() -> Net:
    nlp = transformers()
    config = nlp.LayoutLMConfig(**_TINY, num_labels=3, max_2d_position_embeddings=128)
    model = nlp.LayoutLMForTokenClassification(config)

    def page(paddle: Any, rng: Any) -> Any:
        corners = np.sort(rng.integers(0, 100, (2, 9, 2, 2)), axis=2).reshape(2, 9, 4)
        return paddle.to_tensor(rng.integers(1, 99, (2, 9))), paddle.to_tensor(corners)

    return Net(model, page, lambda m, x: m(*x))
