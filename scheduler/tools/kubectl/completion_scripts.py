"""Scripts that have a shell ask `kubectl_complete-gpushare` for completions."""

from typing import Final, Literal

Shell = Literal["bash", "zsh", "fish"]
_BASH: Final = r"""# kubectl gpushare completion bash: source it, or keep it where your shell looks for completions.
_kubectl_gpushare() {
    local found
    found=$(kubectl_complete-gpushare "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        [[ $word == :* ]] || COMPREPLY+=("$word")
    done <<<"$found"
}
complete -o default -F _kubectl_gpushare kubectl-gpushare
"""
_ZSH: Final = r"""#compdef kubectl-gpushare
# kubectl gpushare completion zsh: source it, or keep it as _kubectl-gpushare in a folder of fpath.
_kubectl_gpushare() {
    local -a found
    found=("${(@f)$(kubectl_complete-gpushare "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#:*}")
    (( ${#found} )) && compadd -- "${(@)found%%$'\t'*}" || _files
}
compdef _kubectl_gpushare kubectl-gpushare
"""
_FISH: Final = r"""# kubectl gpushare completion fish: source it, or keep it as kubectl-gpushare.fish, where fish looks.
function _kubectl_gpushare
    set -l words (commandline -opc) "$(commandline -ct)"
    set -l found (kubectl_complete-gpushare $words[2..] 2>/dev/null)
    or return
    if test "$found[-1]" = ":0"
        __fish_complete_path $words[-1]
    else
        string match --invert ':*' -- $found
    end
end
complete --command kubectl-gpushare --no-files --arguments '(_kubectl_gpushare)'
"""
_SCRIPTS: Final[dict[Shell, str]] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: Shell) -> str:
    """For `kubectl-gpushare` itself; `kubectl gpushare` only needs kubectl's own completion."""
    return _SCRIPTS[shell]
