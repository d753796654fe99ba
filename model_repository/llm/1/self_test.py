"""Says whether image, model repository, GPUs, engine.json and weights fit each other, without starting anything.

python3 self_test.py          # in the container; exits with 1 and the reason where something does not fit
"""

import sys

from engine_config import ConfigError, check_model_files, load, path


def main() -> int:
    try:
        import vllm
        import vllm_internals

        vllm_internals.probe()
        print(f"vLLM {vllm.__version__} fits this model repository")
        if not path().exists():
            print(f"no {path()}: nothing else to check")
            return 0
        config = load()
        check_model_files(config.model)
        for adapter in config.lora_adapters.values():
            check_model_files(adapter, "adapter_config.json")
        vllm_internals.engine_args(config, 0)
        vllm_internals.check_devices(config)
        print(f"{path()}: {config.served_model_name} from {config.model} can be started")
    except (ConfigError, ImportError, RuntimeError) as error:
        print(f"self-test failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
