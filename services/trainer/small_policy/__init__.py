"""The small policy: a model of about two million parameters that writes a domain's SQL half right, so that a laptop can
watch GRPO climb. Supervised on half of the train split; stopped on measured pass@1.
"""
