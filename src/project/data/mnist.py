"""MNIST and FashionMNIST."""

from litlab.data import ImageData, PublicImages

_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def _mnist(name: str, reader: str, class_names: tuple[str, ...]) -> PublicImages:
    file_names = tuple(f"{reader}/raw/{part}-ubyte.gz" for part in _PARTS)
    return PublicImages(name, reader, file_names, class_names, (1, 28, 28))


class MNISTData(ImageData):
    """MNIST (LeCun et al. 1998): 70,000 grey digits of 28 x 28, 10,000 of them to test on."""

    public = _mnist("mnist", "MNIST", tuple("0123456789"))


class FashionMNISTData(ImageData):
    """FashionMNIST (Xiao et al. 2017, arXiv:1708.07747): as MNIST, with 10 kinds of clothes."""

    public = _mnist("fashion_mnist", "FashionMNIST", _CLOTHES)
