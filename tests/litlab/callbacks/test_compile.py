import pytest
import torch
from torch import nn
from torchmetrics import Accuracy

from litlab.callbacks import Compile
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
from tests.processes import Python

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


MADE = []  # what a test has set up


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    for compile, model in MADE:
        compile.teardown(None, model, "fit")
    MADE.clear()
    torch._dynamo.reset()


@pytest.fixture
def spy():
    """A backend that keeps the graphs it is given."""
    graphs = []

    def spy(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.register_backend(spy, name="spy")
    yield graphs
    torch._dynamo.backends.registry._BACKENDS.pop("spy")
    torch._dynamo.backends.registry._COMPILER_FNS.pop("spy")


def set_up(model, compile, tmp_path):
    MADE.append((compile, model))
    compile.setup(make_trainer(tmp_path), model, "fit")


def test_compiled_run_keeps_keys_and_result(tmp_path, spy):
    results = {}
    for mode in (None, "default"):
        torch.manual_seed(0)
        model = Tiny()
        trainer = make_trainer(tmp_path, callbacks=[Compile(mode, backend="spy", dynamic=False)])
        trainer.fit(model, TinyData())
        assert bool(spy) == (mode is not None)
        results[mode] = model.state_dict()
    assert list(results["default"]) == list(Tiny().state_dict())
    for name, value in results[None].items():
        torch.testing.assert_close(results["default"][name], value)


def test_test_after_fit_compiles_nothing_twice(tmp_path, spy):
    compile = Compile("default", backend="spy", dynamic=True)
    trainer = make_trainer(tmp_path, callbacks=[compile], limit_test_batches=1)
    model = Tiny()
    trainer.fit(model, TinyData(8))
    call = model.network._compiled_call_impl
    trainer.test(model, TinyData(8), verbose=False)
    assert model.network._compiled_call_impl is call


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_compiles_in_every_stage(tmp_path, spy, stage):
    class Predicting(Tiny):
        def predict_step(self, batch, batch_idx):
            return self.network(batch[0])

    trainer = make_trainer(tmp_path, callbacks=[Compile("default", backend="spy")])
    data = TinyData().train_dataloader()
    getattr(trainer, stage)(Predicting(), data)
    assert spy


def is_compiled(module):
    return module._compiled_call_impl is not None


def test_null_mode_compiles_nothing(tmp_path):
    model = Tiny()
    set_up(model, Compile(), tmp_path)
    assert not any(is_compiled(module) for module in model.modules())


def test_default_is_the_network_alone(tmp_path):
    model = Tiny()
    model.other = nn.Linear(2, 2)
    set_up(model, Compile("default", backend="eager"), tmp_path)
    assert is_compiled(model.network)
    assert not is_compiled(model.other)
    assert not is_compiled(model)


def test_without_network_children_with_parameters(tmp_path):
    model = Tiny()
    del model.network
    model.encoder = nn.Linear(2, 2)
    model.blocks = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model.loss = nn.CrossEntropyLoss()
    model.accuracy = Accuracy(task="binary")
    model.accuracy.inception = nn.Linear(2, 2)
    set_up(model, Compile("default", backend="eager"), tmp_path)
    compiled = {name for name, module in model.named_modules() if is_compiled(module)}
    assert compiled == {"encoder", "blocks.0", "blocks.1"}


def test_named_children(tmp_path):
    model = Tiny(network=nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))))
    set_up(model, Compile("default", backend="eager", children=["network.1.0"]), tmp_path)
    assert {name for name, module in model.named_modules() if is_compiled(module)} == {"network.1.0"}


def test_children_by_pattern_are_the_outermost(tmp_path):
    blocks = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 2)), "b": nn.Sequential(nn.Linear(2, 2))})
    model = Tiny(network=nn.ModuleList([blocks, nn.Linear(2, 2)]))
    set_up(model, Compile("default", backend="eager", children=["*.a*", "network.0.*", "network.0.b.0"]), tmp_path)
    assert {name for name, module in model.named_modules() if is_compiled(module)} == {"network.0.a", "network.0.b"}


def test_a_pattern_that_fits_nothing_names_model_and_key(tmp_path):
    with pytest.raises(UserError, match=r"compile\.children: no module fits '\*\.blocks\.\*' in model Tiny"):
        set_up(Tiny(), Compile("default", children=["*.blocks.*"]), tmp_path)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.linear(x).relu()


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")
@pytest.mark.parametrize("kind", [Block, lambda: nn.Sequential(Block(), nn.Tanh())])  # torch's own class, and not
def test_blocks_that_are_alike_are_compiled_once(tmp_path, spy, kind):
    model = Tiny(network=nn.ModuleList(kind() for _ in range(5)))
    set_up(model, Compile("default", backend="spy", children=["network.*"]), tmp_path)
    spy.clear()  # of the trial of the backend
    x = torch.ones(2, 4, requires_grad=True) * 1  # no leaf, as what comes from another block
    for block in model.network:
        x = block(x)
    assert len(spy) == 1


def test_blocks_that_differ_have_a_limit_of_their_own_each(tmp_path):
    """PyTorch counts what it compiles by function, whichever module it belongs to."""
    widths = [(2, 2), (2, 4), (4, 4), (4, 8), (4, 4)]  # two of them are alike
    model = Tiny(network=nn.ModuleList(nn.Sequential(nn.Linear(*width)) for width in widths))
    model.frozen = nn.Sequential(nn.Linear(3, 3))
    before = torch._dynamo.config.recompile_limit
    compile = Compile("default", backend="eager", children=["network.*", "frozen"])
    trainer = make_trainer(tmp_path)
    compile.setup(trainer, model, "fit")
    assert torch._dynamo.config.recompile_limit == 5 * before
    compile.teardown(trainer, model, "fit")
    assert torch._dynamo.config.recompile_limit == before


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")  # dynamo's own, which it hides from all but pytest
def test_recurrent_layers_are_compiled_around_and_never_one_graph(tmp_path, spy, caplog):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.rnn, self.after = nn.Linear(4, 4), nn.LSTM(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.after(self.rnn(self.before(x).relu())[0].relu())

    caplog.set_level("INFO", "lightning.pytorch")
    model = Tiny(network=Recurrent())
    with pytest.raises(UserError, match=r"compile\.fullgraph: true .*network\.rnn \(nn\.LSTM\) of the model"):
        set_up(model, Compile("default", backend="spy", fullgraph=True), tmp_path)
    set_up(model, Compile("default", backend="spy"), tmp_path)
    assert "network.rnn (nn.LSTM) is not compiled" in caplog.text
    model.network(torch.ones(3, 2, 4))
    if torch.__version__ >= "2.15":  # 2.10 leaves out the function that calls one
        called = [str(node.target) for graph in spy for node in graph.graph.nodes if node.op == "call_function"]
        assert sum("linear" in name for name in called) == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_reduce_overhead_needs_a_gpu(tmp_path):
    with pytest.raises(UserError, match=r"compile\.mode: reduce-overhead .* trainer\.accelerator runs on cpu"):
        set_up(Tiny(), Compile("reduce-overhead"), tmp_path)


def test_unknown_child_names_the_nearest(tmp_path):
    with pytest.raises(
        UserError, match=r"compile\.children: there is no module 'netwrok' in model Tiny; did you mean 'network'\?"
    ):
        set_up(Tiny(), Compile("default", children=["netwrok"]), tmp_path)


def test_unknown_backend_names_the_valid(tmp_path):
    with pytest.raises(UserError, match=r"compile\.backend: 'inducto' is unknown.*inductor"):
        set_up(Tiny(), Compile("default", backend="inducto"), tmp_path)


def test_unknown_mode_names_the_valid():
    with pytest.raises(UserError, match=r"compile\.mode: 'fast' is unknown.*reduce-overhead"):
        Compile("fast")


def test_modes_belong_to_inductor():
    with pytest.raises(UserError, match=r"compile\.mode: max-autotune needs compile\.backend"):
        Compile("max-autotune", backend="eager")


def test_options_reach_the_compiler(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(torch, "compile", lambda call, **options: given.update(options))
    monkeypatch.setattr("litlab.callbacks.compile.check_backend", lambda *args: None)
    set_up(Tiny(), Compile("max-autotune", dynamic=False, fullgraph=True), tmp_path)
    assert given == {"mode": "max-autotune", "dynamic": False, "fullgraph": True, "backend": "inductor"}


@pytest.mark.parametrize(("mode", "marks"), [("reduce-overhead", 2 + 2 + 2), ("default", 0), (None, 0)])
def test_cuda_graphs_are_told_of_each_step(tmp_path, monkeypatch, mode, marks):
    calls = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: calls.append(1))
    monkeypatch.setattr(Compile, "setup", lambda *args, **options: None)
    trainer = make_trainer(tmp_path, callbacks=[Compile(mode)], num_sanity_val_steps=0)
    trainer.fit(Tiny(), TinyData(8))
    trainer.test(Tiny(), TinyData(8), verbose=False)
    assert len(calls) == marks


def test_no_compiler_is_one_line(tmp_path):
    """In a process of its own: inductor remembers the compilers it found, and caches what they made."""
    program = (
        "import torch, torch._inductor.config\n"
        "torch._inductor.config.cpp.cxx = (None, '/no/such/compiler')\n"
        "from litlab.callbacks.compile_parts import check_backend\n"
        "from litlab.errors import UserError\n"
        "try:\n"
        "    check_backend('inductor', torch.device('cpu'))\n"
        "except UserError as error:\n"
        "    print(error)\n"
    )
    script = tmp_path / "compile.py"
    script.write_text(program)
    environment = {"TORCHINDUCTOR_CACHE_DIR": tmp_path}
    printed, errors = Python(script, cwd=tmp_path, environment=environment).communicate()
    assert len(printed.splitlines()) == 1, errors
    assert "no working compiler for cpu" in printed
    assert "--compile.mode null" in printed
