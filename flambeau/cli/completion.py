"""Print a completion script for a shell.

  eval "$(flambeau completion bash)"                              in ~/.bashrc
  eval "$(flambeau completion zsh)"                               in ~/.zshrc, after compinit
  flambeau completion fish > ~/.config/fish/completions/flambeau.fish
"""

from __future__ import annotations

import argparse

from flambeau import cli

HELP = "print a completion script for bash, zsh or fish"


def add_arguments(form: argparse.ArgumentParser) -> None:
    form.add_argument("shell", choices=SHELLS)


def main(options: argparse.Namespace) -> int:
    print(SHELLS[options.shell](words()), end="")
    return 0


def words() -> dict[str, tuple[str, list[str]]]:
    """command -> what it does, and the words that may follow it: options and choices."""
    found = {}
    for name, told in cli.COMMANDS.items():
        form = argparse.ArgumentParser(prog=name)
        cli.module_of(name).add_arguments(form)
        follow: list[str] = []
        for action in form._actions:
            follow += action.option_strings
            follow += [str(choice) for choice in action.choices or ()]
        found[name] = (told, sorted(set(follow) - {"-h"}))
    return found


def bash(commands: dict[str, tuple[str, list[str]]]) -> str:
    cases = "\n".join(f"        {name}) words=\"{' '.join(follow)}\" ;;"
                      for name, (_, follow) in commands.items())
    return f"""\
_flambeau() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "{' '.join(commands)} --help --version" -- "$current"))
        return
    fi
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ ${{COMP_WORDS[1]}} == run && $current != -* ]]; then
        COMPREPLY+=($(compgen -f -X '!*.py' -- "$current") $(compgen -d -- "$current"))
    fi
}}
complete -F _flambeau flambeau
"""


def zsh(commands: dict[str, tuple[str, list[str]]]) -> str:
    listed = "\n".join(f"        '{name}:{told}'" for name, (told, _) in commands.items())
    cases = "\n".join(f"        {name}) compadd -- {' '.join(follow)} ;;"
                      for name, (_, follow) in commands.items())
    return f"""\
#compdef flambeau
_flambeau() {{
    local -a commands=(
{listed}
    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    case $words[2] in
{cases}
    esac
    [[ $words[2] == run ]] && _files -g '*.py'
}}
compdef _flambeau flambeau
"""


def fish(commands: dict[str, tuple[str, list[str]]]) -> str:
    lines = ["complete -c flambeau -f"]
    for name, (told, follow) in commands.items():
        escaped = told.replace("'", "\\'")
        lines.append(f"complete -c flambeau -n __fish_use_subcommand -a {name} -d '{escaped}'")
        inside = f"complete -c flambeau -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{inside} -l {word[2:]}" for word in follow if word.startswith("--")]
        plain = [word for word in follow if not word.startswith("-")]
        lines += [f"{inside} -a '{' '.join(plain)}'"] if plain else []
    lines.append("complete -c flambeau -n '__fish_seen_subcommand_from run' -F")
    return "\n".join(lines) + "\n"


SHELLS = {
    "bash": bash,
    "zsh":  zsh,
    "fish": fish,
}  # fmt: skip
