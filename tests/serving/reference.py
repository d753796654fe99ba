"""Right answers from outside: the tiny model in Hugging Face transformers, greedy, in 32 bit."""

# pyright: reportMissingImports=false

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


class Reference:
    def __init__(self, directory: Path) -> None:
        torch.set_num_threads(1)  # more wait for each other busily, and the model is tiny
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)

    def tokens(self, prompt: str) -> int:
        return len(self.tokenizer(prompt).input_ids)

    def shortfall(self, prompt: str, answer: list[int]) -> float:
        """How far an answer's tokens are from the best ones; 0 is the greedy answer.

        The largest gap of a token's logit to the best at its place, as a share of the range of logits there.
        """
        ids = [*self.tokenizer(prompt).input_ids, *answer]
        with torch.no_grad():
            logits = self.model(torch.tensor([ids])).logits[0, -len(answer) - 1 : -1]
        best, worst = logits.amax(-1), logits.amin(-1)
        return float(((best - logits.gather(1, torch.tensor(answer)[:, None])[:, 0]) / (best - worst)).max())

    def greedy(self, prompt: str, tokens: int) -> tuple[str, str]:
        """Text and finish reason of the greedy answer of at most `tokens` tokens."""
        inputs = self.tokenizer(prompt, return_tensors="pt")
        outputs = self.model.generate(
            inputs.input_ids, max_new_tokens=tokens, do_sample=False, temperature=None, top_k=None, pad_token_id=1
        )
        new = outputs[0][inputs.input_ids.shape[1] :]
        reason = "stop" if new[-1] == 1 else "length"
        text = self.tokenizer.decode(new, skip_special_tokens=True)
        while text.endswith("\N{REPLACEMENT CHARACTER}"):  # an answer that is cut inside a character ends before it
            new = new[:-1]
            text = self.tokenizer.decode(new, skip_special_tokens=True)
        return text, reason
