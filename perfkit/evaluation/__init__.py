"""How well a language model predicts: the loss of a token file, and the accuracy of questions with several endings.

A backend is faster for nothing if its model predicts worse: each is compared with the first one on the same tokens.
"""

from perfkit.evaluation.evaluate import evaluate
from perfkit.evaluation.results import Accuracy, Evaluated, Evaluation, MeanLoss

__all__ = ["Accuracy", "Evaluated", "Evaluation", "MeanLoss", "evaluate"]
