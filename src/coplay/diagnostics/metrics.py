"""Every metric by name, with a sentence. The same names stand in Parquet, TensorBoard and the report."""

METRICS: dict[str, str] = {
    "return": "Mean return of the episodes that ended in a round, per agent: the game's own reward.",
    "length": "Mean length of those episodes.",
    "count/episodes": "How many episodes ended in a round.",
    "action/<name>": "Share of an agent's actions while in the game that were this one.",
    "eval/return": "Mean return of evaluation games, per agent, in games and keys of their own.",
    "eval/length": "Mean length of evaluation games.",
    "policy/loss": "PPO's clipped surrogate, negative; averaged over epochs.",
    "policy/entropy": "Mean entropy of the policy over legal actions, in nats.",
    "policy/kl": "Mean divergence of the new policy from the one that played, E[(ratio - 1) - log ratio].",
    "policy/ratio": "Mean ratio of new to old action probability; 1 if nothing was learned.",
    "policy/clip_share": "Share of rows whose ratio left the clip range.",
    "policy/grad_norm": "Norm of the policy's gradient before clipping.",
    "value/loss": "The critic's loss in normalised units.",
    "value/grad_norm": "Norm of the critic's gradient before clipping.",
    "value/explained_variance": "1 - variance(return - value) / variance(return), before the update.",
    "value/prediction_mean": "Mean predicted return, in the game's units.",
    "value/prediction_std": "Spread of predicted returns.",
    "count/updates/policy": "Optimiser steps in a round, per agent.",
    "count/samples/policy": "Active rows times epochs in a round, of all agents that share the weights.",
}
