"""A published configuration of Hugging Face of each kind of layers: the keys that count, and the parameters.

Keys are those of the models' config.json; transformers has most of them as defaults of its configurations. Totals are
those of the weights on huggingface.co without the layers of multi-token prediction and without encoders of images. They
are half the `total_size` of the index of the weights (Qwen3, OLMoE), or were counted by others tensor by tensor
(DeepSeek, gpt-oss, Qwen1.5-MoE, Mixtral). The rest was added up from the shapes of the tensors in the models' code, and
is within 1 % of what the authors name.
"""

from __future__ import annotations

from typing import Any

_DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_shared_experts": 1,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
    "vocab_size": 129280, "tie_word_embeddings": False, "num_nextn_predict_layers": 1,
}  # fmt: skip
_LLAMA_4: dict[str, Any] = {
    "model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
    "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "vocab_size": 202048,
    "tie_word_embeddings": False, "attention_bias": False, "layer_types": ["chunked_attention"] * 48,
}  # fmt: skip
_GLM: dict[str, Any] = {
    "model_type": "glm4_moe", "hidden_size": 5120, "num_hidden_layers": 92, "num_attention_heads": 96,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "moe_intermediate_size": 1536,
    "n_shared_experts": 1, "n_routed_experts": 160, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "attention_bias": True, "use_qk_norm": True, "vocab_size": 151552, "tie_word_embeddings": False,
    "num_nextn_predict_layers": 1,
}  # fmt: skip
QWEN3: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "tie_word_embeddings": False,
}  # fmt: skip


# configuration and parameters
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "Qwen3-30B-A3B": (QWEN3, 30_532_122_624),
    "Qwen3-30B-A3B of transformers 5": (
        {"num_local_experts" if key == "num_experts" else key: value for key, value in QWEN3.items()},
        30_532_122_624,
    ),
    "Qwen3-VL-30B-A3B": (
        {"model_type": "qwen3_vl_moe", "text_config": QWEN3 | {"model_type": "qwen3_vl_moe_text"}},
        30_532_122_624,
    ),
    "Qwen1.5-MoE-A2.7B": (
        {
            "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
            "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936,
            "tie_word_embeddings": False, "decoder_sparse_step": 1,
        },
        14_315_784_192,
    ),
    "DeepSeek-V3": (_DEEPSEEK, 671_026_419_200),
    "DeepSeek-V2-Lite": (
        _DEEPSEEK
        | {"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16}
        | {"num_key_value_heads": 16, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_shared_experts": 2}
        | {"n_routed_experts": 64, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "q_lora_rank": None}
        | {"vocab_size": 102400},
        15_706_484_224,
    ),
    "DeepSeekMoE-16B": (
        {
            "model_type": "deepseek", "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
            "num_key_value_heads": 16, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_shared_experts": 2,
            "n_routed_experts": 64, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1,
            "vocab_size": 102400, "tie_word_embeddings": False,
        },
        16_375_728_128,
    ),
    "Kimi-K2.5": (
        {
            "model_type": "kimi_k25",
            "text_config": _DEEPSEEK
            | {"model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384}
            | {"first_k_dense_replace": 1, "vocab_size": 163840},
        },
        1_026_408_232_448,
    ),
    "GLM-4.5": (_GLM, 352_797_829_024),
    "GLM-4.5V": (
        {
            "model_type": "glm4v_moe",
            "text_config": _GLM
            | {"model_type": "glm4v_moe_text", "hidden_size": 4096, "num_hidden_layers": 46, "use_qk_norm": False}
            | {"intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 128}
            | {"first_k_dense_replace": 1},
        },
        106_852_251_264,
    ),
    "GLM-4.5-Air with a list of layers": (
        _GLM
        | {"hidden_size": 4096, "num_hidden_layers": 46, "intermediate_size": 10944, "moe_intermediate_size": 1408}
        | {"n_routed_experts": 128, "first_k_dense_replace": None, "use_qk_norm": False}
        | {"mlp_layer_types": ["dense", *["sparse"] * 45]},
        106_852_251_264,
    ),
    "gpt-oss-120b": (
        {
            "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 128,
            "num_experts_per_tok": 4, "experts_per_token": 4, "attention_bias": True, "vocab_size": 201088,
            "layer_types": ["sliding_attention", "full_attention"] * 18, "tie_word_embeddings": False,
        },
        116_829_156_672,
    ),
    "Llama-4-Maverick": (
        {"model_type": "llama4", "text_config": _LLAMA_4 | {"num_local_experts": 128, "interleave_moe_layer_step": 2}},
        400_711_848_960,
    ),
    "Llama-4-Maverick with its layers": (
        _LLAMA_4 | {"num_local_experts": 128, "moe_layers": list(range(1, 48, 2)), "interleave_moe_layer_step": 2},
        400_711_848_960,
    ),
    "MiniMax-M2": (
        {
            "model_type": "minimax_m2", "hidden_size": 3072, "num_hidden_layers": 62, "num_attention_heads": 48,
            "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 1536, "num_local_experts": 256,
            "num_experts_per_tok": 8, "use_qk_norm": True, "qk_norm_type": "per_layer", "use_routing_bias": True,
            "vocab_size": 200064, "attn_type_list": [1] * 62, "shared_intermediate_size": 0,
            "tie_word_embeddings": False,
        },
        228_689_764_864,
    ),
    "granite-3.0-3b-a800m": (
        {
            "model_type": "granitemoe", "hidden_size": 1536, "num_hidden_layers": 32, "num_attention_heads": 24,
            "num_key_value_heads": 8, "intermediate_size": 512, "num_local_experts": 40, "num_experts_per_tok": 8,
            "attention_bias": False, "vocab_size": 49155, "tie_word_embeddings": True,
        },
        3_298_793_472,
    ),
    "OLMoE-1B-7B": (
        {
            "model_type": "olmoe", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
            "num_key_value_heads": 16, "intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8,
            "attention_bias": False, "vocab_size": 50304, "tie_word_embeddings": False,
        },
        6_919_161_856,
    ),
    "Phi-3.5-MoE": (
        {
            "model_type": "phimoe", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 6400, "num_local_experts": 16, "num_experts_per_tok": 2,
            "attention_bias": True, "lm_head_bias": True, "vocab_size": 32064, "tie_word_embeddings": False,
        },
        41_873_153_344,
    ),
    "dbrx": (
        {
            "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
            "attn_config": {"kv_n_heads": 8, "clip_qkv": 8}, "tie_word_embeddings": False,
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        131_596_523_520,
    ),
    "ERNIE-4.5-21B-A3B": (
        {
            "model_type": "ernie4_5_moe", "hidden_size": 2560, "num_hidden_layers": 28, "num_attention_heads": 20,
            "num_key_value_heads": 4, "intermediate_size": 12288, "moe_intermediate_size": 1536, "moe_num_experts": 64,
            "moe_num_shared_experts": 2, "moe_k": 6, "moe_layer_start_index": 1, "moe_layer_end_index": 27,
            "moe_layer_interval": 1, "use_bias": False, "vocab_size": 103424,
        },
        21_825_437_888,
    ),
    "Hunyuan-A13B": (
        {
            "model_type": "hunyuan_v1_moe", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "attention_head_dim": 128, "intermediate_size": 3072, "num_experts": 64,
            "moe_intermediate_size": [3072] * 32, "moe_topk": [8] * 32, "num_shared_expert": [1] * 32, "use_cla": False,
            "cla_share_factor": 2, "use_qk_norm": True, "vocab_size": 128167, "tie_word_embeddings": True,
        },
        80_393_183_232,
    ),
}  # fmt: skip
