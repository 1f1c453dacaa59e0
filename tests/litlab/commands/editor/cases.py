"""Configs and sweep files as an editor sees them: what it accepts, and what it says of the rest; not a test itself."""

RIGHT = [
    "trainer.max_epochs: 3",  # as the overlays of a sweep have it
    "base: [images.yaml, with/smoke.yaml]",
    "trainer: {max_epochs: -1, precision: 16, callbacks: {class_path: EMA}, logger: false, profiler: simple}",
    "trainer: {callbacks+: [EMA, {class_path: mine.Callback, init_args: {anything: 1}}]}",
    "trainer: {callbacks: [{class_path: lightning.pytorch.callbacks.EarlyStopping, init_args: {monitor: a}}]}",
    "trainer: {logger: [{class_path: CSVLogger, init_args: {save_dir: a}, dict_kwargs: {b: 1}}]}",
    "model: Classifier",
    "model: mine.models.Model",
    "model: {class_path: mine.models.Model, init_args: {anything: {at: all}}}",
    "model: {init_args: {label_smoothing: 0.1, hidden_size: 8, optimizer: {init_args: {fused: true}}}}",
    "model: {init_args: {optimizer: torch.optim.adamw.AdamW}}",
    "model: {init_args: {optimizer: {class_path: litlab.optim.Muon, init_args: {lr: 1e-3, others: []}}}}",
    "model: {init_args: {network: {class_path: torchvision.models.resnet18, init_args: {weights: IMAGENET1K_V1}}}}",
    "model: {init_args: {network: {class_path: mine.make_network, init_args: {anything: 1}}}}",
    "model: {init_args: {metrics: {auc: {class_path: torchmetrics.AUROC, init_args: {task: multiclass}}}}}",
    "model: {init_args: {schedule: {scheduler: StepLR}, param_groups: {rules: [{params: '*', lr_scale: 0.1}]}}}",
    "data: {class_path: TabularData, init_args: {batch_size: 1, seed: null}}",
    "{ema: {}, swa: null, compile: {class_path: Compile, init_args: {mode: null}}, early_stopping: {patience: 0}}",
    "{seed_everything: true, threads: 1, resume: last, check: true, ckpt_path: best}",
]
WRONG = {
    # keys at each level
    "modle: {}": "modle: not allowed",
    "config: a.yaml": "config: not allowed",
    "run: last": "run: not allowed",
    "modle.width: 3": "modle.width: not allowed",
    "trainer: {max_epoch: 3}": "trainer.max_epoch: not allowed",
    "checkpoint: {montor: val/acc}": "checkpoint.montor: not allowed",
    "checkpoint: {init_args: {montor: val/acc}}": "checkpoint.init_args.montor: not allowed",
    "freeze: {rules: [{param: a}]}": "freeze.rules.0.param: not allowed",
    "model: {init_arg: {}}": "model.init_arg: not allowed",
    "model: {class_path: SmallCNN, width: 3}": "model.width: not allowed",
    "model: {init_args: {label_smothing: 0.1}}": "model.init_args.label_smothing: not allowed",
    "model: {class_path: SmallCNN, init_args: {widht: 8}}": "model.init_args.widht: not allowed",
    "model: {init_args: {schedule: {schedulr: StepLR}}}": "model.init_args.schedule.schedulr: not allowed",
    "model: {init_args: {optimizer: {class_path: SGD, lr: 1}}}": "model.init_args.optimizer.lr: not allowed",
    "data: {init_args: {augment: {cropp: 2}}}": "data.init_args.augment.cropp: not allowed",
    "trainer: {callbacks+: [{class_path: EMA, init_args: {dcay: 1}}]}":
        "trainer.callbacks+.0.init_args.dcay: not allowed",
    "trainer: {callbacks: {EMA: {decay: 0.9}}}": "trainer.callbacks.EMA: not allowed",
    # settings of another class
    "model: {class_path: SmallCNN, init_args: {hidden_size: 3}}": "model.init_args.hidden_size: not allowed",
    "model: {init_args: {optimizer: {class_path: torch.optim.SGD, init_args: {betas: [0.9, 0.9]}}}}":
        "model.init_args.optimizer.init_args.betas: not allowed",
    "trainer: {callbacks: [{class_path: EMA, init_args: {monitor: a}}]}":
        "trainer.callbacks.0.init_args.monitor: not allowed",
    # class names
    "model: SmallCNNN": "model: 'SmallCNNN' is not one of ['SmallCNN', ",
    "data: {class_path: SeriesDta}": "data.class_path: 'SeriesDta' is not one of ['ExperimentData', 'ImageData', ",
    "trainer: {callbacks: [EMMA]}": "trainer.callbacks.0: 'EMMA' is not one of ['Pictures', 'AGC', ",
    "trainer: {callbacks+: [{class_path: EMMA}]}":
        "trainer.callbacks+.0.class_path: 'EMMA' is not one of ['Pictures', 'AGC', ",
    "trainer: {logger: TensorBoardLoger}": "trainer.logger: 'TensorBoardLoger' is not one of ['CSVLogger', ",
    "compile: maybe": "compile: 'maybe' is not one of ['Compile']",
    "model: {init_args: {optimizer: {class_path: SDG}}}":
        "model.init_args.optimizer.class_path: 'SDG' is not one of ['ASGD', ",
    "model: {init_args: {schedule: {scheduler: ReduceLROnPlateau}}}":  # there are two
        "model.init_args.schedule.scheduler: 'ReduceLROnPlateau' is not one of ['WarmupDecay', ",
    "model: {class_path: null}": "model.class_path: None is not of type 'string'",
    "trainer: {callbacks: [{dict_kwargs: {}}]}": "trainer.callbacks.0: 'class_path' is a required property",
    # types
    "trainer: 5": "trainer: 5 is not of type 'object'",
    "trainer: {max_epochs: three}": "trainer.max_epochs: 'three' is not of type 'integer', 'null'",
    "trainer: {limit_train_batches: x}": "trainer.limit_train_batches: 'x' is not of type 'number', 'null'",
    "trainer: {callbacks: [5]}": "trainer.callbacks.0: 5 is not of type 'string', 'object'",
    "model: []": "model: [] is not of type 'string', 'object'",
    "model: {init_args: 5}": "model.init_args: 5 is not of type 'object'",
    "model: {class_path: SmallCNN, init_args: {width: 8.5}}": "model.init_args.width: 8.5 is not of type 'integer'",
    "model: {init_args: {optimizer: [SGD]}}":
        "model.init_args.optimizer: ['SGD'] is not of type 'string', 'object', 'null'",
    "data: {class_path: SeriesData, init_args: {targets: a}}":
        "data.init_args.targets: 'a' is not of type 'array', 'null'",
    "data: {init_args: {targets: [1]}}": "data.init_args.targets.0: 1 is not of type 'string'",
    "data: {class_path: ImageData, init_args: {image_size: [3]}}": "data.init_args.image_size: [3] is too short",
    "experiment: 5": "experiment: 5 is not of type 'string'",
    "test_after_fit: maybe": "test_after_fit: 'maybe' is not of type 'boolean'",
    "ema: 0.9": "ema: 0.9 is not of type 'string', 'object', 'null'",
    "base: {a: 3}": "base: {'a': 3} is not of type 'string', 'array'",
    # bounds
    "threads: 0": "threads: 0 is less than the minimum of 1",
    "seed_everything: -1": "seed_everything: -1 is less than the minimum of 0",
    "trainer: {max_epochs: 0}": "trainer.max_epochs: 0 is less than the minimum of 1",
    "trainer: {gradient_clip_val: -1}": "trainer.gradient_clip_val: -1 is less than the minimum of 0",
    "checkpoint: {save_top_k: -2}": "checkpoint.save_top_k: -2 is less than the minimum of -1",
    "ema: {decay: 1}": "ema.decay: 1 is greater than or equal to the maximum of 1",
    "model: {class_path: Classifier, init_args: {label_smoothing: 1}}":
        "model.init_args.label_smoothing: 1 is greater than or equal to the maximum of 1",
    "model: {init_args: {optimizer: {class_path: SGD, init_args: {lr: 0}}}}":
        "model.init_args.optimizer.init_args.lr: 0 is less than or equal to the minimum of 0",
    "model: {init_args: {optimizer: {class_path: Adam, init_args: {betas: [0.9, 1]}}}}":
        "model.init_args.optimizer.init_args.betas.1: 1 is greater than or equal to the maximum of 1",
    # choices
    "checkpoint: {mode: maximum}": "checkpoint.mode: 'maximum' is not one of ['min', 'max', None]",
    "trainer: {deterministic: wran}": "trainer.deterministic: 'wran' is not one of [True, False, 'warn', None]",
    "model: {init_args: {activation: RELU}}": "model.init_args.activation: 'RELU' is not one of ['tanh', 'relu'",
    "model: {init_args: {schedule: {interval: stpe}}}":
        "model.init_args.schedule.interval: 'stpe' is not one of ['step', 'epoch']",
    # null
    "trainer: null": "trainer: None is not of type 'object'",
    "model: null": "model: None is not of type 'string', 'object'",
    "channels_last: null": "channels_last: None is not of type 'boolean'",
    "data: {class_path: ImageData, init_args: {batch_size: null}}":
        "data.init_args.batch_size: None is not of type 'integer'",
    "data: {class_path: ImageData, init_args: {augment: null}}":
        "data.init_args.augment: None is not of type 'object'",
}  # fmt: skip
SWEEP = "{base: a.yaml, metric: val/acc, direction: maximize, trials: 3, space: {model.width: {low: 1, high: 2}}}"
RIGHT_SWEEPS = [
    "{metric: [val/acc, val/loss], direction: [maximize, minimize], sampler: nsga2}",
    "{seeds: 2, sampler: {name: tpe, seed: 0}, pruner: none, base: [a.yaml], settings: {trainer.callbacks: []}}",
    "space: {model.optimizer: {choices: {a: SGD}}, model.optimizer.lr: {low: 0.1, high: 1, log: true, when: {a: b}}}",
    "space: {model.network.anything.of: {choices: [1, two]}, model.network: {choices: [mine.Network]}}",
]
WRONG_SWEEPS = {
    "trails: 3": "trails: not allowed",
    "direction: max": "direction: 'max' is not one of ['minimize', 'maximize']",
    "trials: 0": "trials: 0 is less than the minimum of 1",
    "sampler: tep": "sampler: 'tep' is not one of ['tpe', ",
    "sampler: {name: tpe, sed: 1}": "sampler.sed: not allowed",
    "pruner: {name: median, n_startup_trials: a}": "pruner.n_startup_trials: 'a' is not of type 'number'",
    "settings: {trainer.max_epoch: 1}": "settings.trainer.max_epoch: not allowed",
    "settings: {trainer.max_epochs: one}": "settings.trainer.max_epochs: 'one' is not of type 'integer', 'null'",
    "space: {}": "space: {} ",
    "space: {modle.width: {low: 1, high: 2}}": "space.modle.width: not allowed",
    "space: {model.width: {low: 1, high: 2, hgih: 2}}": "space.model.width.hgih: not allowed",
    "space: {model.width: {low: 1}}": "space.model.width: 'high' is a required property",
    "space: {model.width: {choices: 3}}": "space.model.width.choices: 3 is not of type 'array', 'object'",
    "space: {model.width: {choices: [3], log: true}}": "space.model.width.log: not allowed",
}
