"""Reads and renders the conda recipe as rattler-build does: python packaging/check_conda.py (with py-rattler-build of PyPI). Builds nothing."""

import pathlib

from rattler_build import Stage0Recipe, VariantConfig

# What conda-forge's own pins say of compilers; a recipe does not render without them.
variants = VariantConfig(
    {
        "python": ["3.12.* *_cpython"],
        "c_compiler": ["gcc"],
        "rust_compiler": ["rust"],
        "c_stdlib": ["sysroot"],
        "c_stdlib_version": ["2.28"],
    }
)
recipe = Stage0Recipe.from_yaml(pathlib.Path(__file__).with_name("conda").joinpath("recipe.yaml").read_text())
version = pathlib.Path(__file__).parents[1].joinpath("Cargo.toml").read_text().split('\nversion = "')[1].split('"')[0]
for rendered in recipe.render(variants):
    package = rendered.recipe.package
    assert str(package.version) == version, f"the recipe is for {package.version}, this is {version}"
    print(package.name, package.version, "renders")
