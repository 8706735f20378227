/** Options of interpreters, by their manuals, that load nothing beside the script: no modules, no start files, no other directory. */
const PLAIN: readonly { readonly names: readonly string[]; readonly plain: RegExp; readonly valued?: RegExp }[] = [
  {
    names: ['sh', 'bash', 'rbash', 'dash', 'ash', 'zsh', 'ksh'],
    plain: /^[-+][abefhkmnprtuvxBCEHPT]*[oO]?$|^--(norc|noprofile|posix|restricted|verbose)$/,
    valued: /^[-+][^-]*[oO]$/,
  },
  { names: ['python', 'pypy'], plain: /^-[bBdEIOPqRsSuvx]+$/ },
  { names: ['perl'], plain: /^-[acnpstTuUwWXl0-9]+$/ },
  { names: ['ruby'], plain: /^-[alnpswvW0-9]+$/ },
  {
    names: ['node', 'nodejs'],
    plain:
      /^--(no-[a-z-]+|trace-(warnings|deprecation|uncaught|exit)|enable-source-maps|use-strict|expose-gc|experimental-strip-types|max-old-space-size=\d+)$/,
  },
]

/** The first option before its script by which an interpreter may run more than that; null: there is none. */
export const loadingOption = (interpreter: string, words: readonly string[]): string | null => {
  const known = PLAIN.find(({ names }) => names.includes(interpreter))
  for (let at = 0; at < words.length; at++) {
    const word = words[at]!
    if (word === '--' || !/^[-+]/.test(word)) return null
    if (known?.plain.test(word) !== true) return word
    if (known.valued?.test(word) === true) at += 1
  }
  return null
}
