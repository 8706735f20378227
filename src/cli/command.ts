/** Kinds of words that the local daemon can complete. */
export type DaemonWords = 'agents' | 'contacts' | 'hosts' | 'machines' | 'runs' | 'detached'
/** Candidates for completion, or the kind of words to ask the daemon for. */
export type Completes = DaemonWords | readonly string[]

/** An option in the form of its help, such as `-n, --lines <count>` or `--raw`. The parser needs no more. */
export interface OptionSpec {
  readonly flags: string
  readonly text: string
  readonly default?: string
  /** Names of options that exclude this one. Its own name in the list is ignored. */
  readonly conflicts?: readonly string[]
  /** Names of options of which at least one must be given too. */
  readonly goesWith?: readonly string[]
  readonly completes?: Completes
}

/** `<name>` is required, `[text]` is optional, `[files...]` takes all remaining words. */
export interface ArgumentSpec {
  readonly flags: string
  readonly text?: string
  readonly completes?: Completes
}

/** An exit status and its meaning. */
export type ExitSpec = readonly [status: string, text: string]

/** One command: its syntax and its description. The parser, help, manual pages and completion use it. */
export interface CommandSpec {
  readonly name: string
  /** The description, in the imperative and at most 10 words. */
  readonly text: string
  /** The syntax after its name; by default it follows from options and arguments. */
  readonly usage?: string
  /** Options. Those of a program are valid for its commands too. */
  readonly options?: readonly OptionSpec[]
  readonly arguments?: readonly ArgumentSpec[]
  readonly examples?: readonly string[]
  /** Paragraphs below the examples. */
  readonly notes?: readonly string[]
  readonly exits?: readonly ExitSpec[]
  readonly commands?: readonly CommandSpec[]
  /** It needs one of `commands` and does nothing by itself. */
  readonly group?: true
  /** The words after `--` are another program's command line. */
  readonly carries?: true
  /** Programs that are started like commands, by the first word. */
  readonly programs?: readonly string[]
  /** This installation does not have the `programs`. */
  readonly elsewhere?: true
  /** Words that other programs use for this. As an unknown command, each suggests this one. */
  readonly otherWords?: readonly string[]
  /** Advice after an unknown option. */
  readonly hint?: string
}

/** From the program to the chosen command. */
export type CommandPath = readonly [CommandSpec, ...CommandSpec[]]

export const HELP_OPTION: OptionSpec = { flags: '-h, --help', text: 'Show this help' }
export const VERSION_OPTION: OptionSpec = { flags: '--version', text: 'Print the version' }

const FLAGS = /^(?:-(\w), )?--([\w-]+)( <.+>)?$/

export const optionParts = ({
  flags,
}: OptionSpec): { readonly name: string; readonly short: string | undefined; readonly takesValue: boolean } => {
  const [, short, name = '', value] = FLAGS.exec(flags) ?? []
  return { name, short, takesValue: value !== undefined }
}

export const argumentName = ({ flags }: ArgumentSpec): string => flags.slice(1, -1).replace('...', '')
export const isVariadic = ({ flags }: ArgumentSpec): boolean => flags.includes('...')

/** The options that the last command of a path takes: its own, and those of the program that have another name. */
export const optionsOf = (path: CommandPath): readonly OptionSpec[] => {
  const own = path.at(-1)?.options ?? []
  if (path.length === 1) return own
  const names = own.map((option) => optionParts(option).name)
  return [...own, ...(path[0].options ?? []).filter((option) => !names.includes(optionParts(option).name))]
}

/** `x0x contacts pin` */
export const pathText = (path: CommandPath): string => path.map(({ name }) => name).join(' ')

/** The syntax after the words of a command. */
export const usageOf = ({ usage, commands, arguments: words = [] }: CommandSpec): string =>
  usage ?? ['[options]', ...(commands === undefined ? [] : ['[command]']), ...words.map(({ flags }) => flags)].join(' ')
