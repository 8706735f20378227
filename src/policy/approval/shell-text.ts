/** Words of a simple text for a shell; more is not followed. */
const MAX_WORDS = 256

/** What a shell itself acts on outside of quotes; with any of it the text is more than words. */
const SPECIAL = /[$`\\*?[\]{}()<>~#!^]/
const SEPARATOR = /[;&|\n]/
/** Begin more than a command, run what their words say, or expand them once more, in a subscript: `test -v 'a[$(x)]'`. */
const SHELL_WORDS =
  /^(test|\[|printf|jobs|compgen|eval|\.|source|exec|command|builtin|trap|alias|unalias|if|then|elif|else|fi|for|while|until|do|done|case|esac|in|function|select|time|coproc|set|shopt|enable|export|declare|typeset|local|readonly|hash|bind|complete|fc|mapfile|readarray|read|let|unset|umask|ulimit)$/
/** Sets a variable for the command behind it. */
const ASSIGNMENT = /^[A-Za-z_][A-Za-z0-9_]*\+?=/

/**
 * The commands of a text that a shell would run, where they are plain words between `;`, `&`, `|` and line breaks and nothing is
 * expanded, redirected or defined; null where it is more than that, so that what runs cannot be told from the text.
 */
export const commandsOf = (text: string): string[][] | null => {
  const commands: string[][] = [[]]
  let word: string | null = null
  let total = 0
  const end = (): void => {
    if (word === null) return
    commands.at(-1)!.push(word)
    total += 1
    word = null
  }
  for (let at = 0; at < text.length; at++) {
    const character = text[at]!
    if (character === "'" || character === '"') {
      const close = text.indexOf(character, at + 1)
      if (close === -1) return null
      const quoted = text.slice(at + 1, close)
      if (character === '"' && /[$`\\!]/.test(quoted)) return null
      word = (word ?? '') + quoted
      at = close
    } else if (character === ' ' || character === '\t') end()
    else if (SEPARATOR.test(character)) {
      end()
      commands.push([])
    } else if (SPECIAL.test(character)) return null
    else word = (word ?? '') + character
    if (total > MAX_WORDS) return null
  }
  end()
  const found = commands.filter((words) => words.length > 0)
  return found.some(([first = '']) => SHELL_WORDS.test(first) || ASSIGNMENT.test(first)) ? null : found
}
