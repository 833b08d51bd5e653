"""All programs by name."""

from __future__ import annotations

from bench.short import generation, generative, loops, pictures, sequences, tables

PROGRAMS = {
    f.__name__: f
    for f in (
        generative.gan,
        generative.vae,
        generative.unet,
        generative.unet_sizes,
        generative.flow,
        sequences.lstm_lengths,
        sequences.truncated_bptt,
        sequences.seq2seq,
        sequences.forecast,
        sequences.decode,
        generation.gpt,
        generation.llama,
        generation.beam_search,
        generation.ddpm,
        pictures.style_transfer,
        pictures.detection,
        pictures.contrastive,
        pictures.distillation,
        pictures.nerf,
        pictures.pinn,
        tables.crf,
        tables.recommender,
        tables.settings,
        tables.citations,
        tables.q_learning,
        loops.loader,
        loops.accumulation,
        loops.batch_sizes,
        loops.policy_gradient,
        loops.maml,
        loops.graph_network,
    )
}
