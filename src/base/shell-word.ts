/** A word for a POSIX shell, quoted where it must be: what is printed can be pasted. */
export const shellWord = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)

export const shellWords = (words: readonly string[]): string => words.map(shellWord).join(' ')
