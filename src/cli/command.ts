/** What the local daemon knows that may stand there. */
export type DaemonWords = 'agents' | 'contacts' | 'hosts' | 'machines' | 'runs' | 'detached'
/** Words that may stand there, or who knows them. */
export type Completes = DaemonWords | readonly string[]

/** An option as help shows it, which is all that parsing needs: `-n, --lines <count>`, `--raw`. */
export interface OptionSpec {
  readonly flags: string
  readonly text: string
  readonly default?: string
  /** Names of options that it cannot stand beside; its own counts for nothing. */
  readonly conflicts?: readonly string[]
  /** Names of options of which one must stand beside it. */
  readonly goesWith?: readonly string[]
  readonly completes?: Completes
}

/** `<name>` must be there, `[text]` may be, `[files...]` takes all that is left. */
export interface ArgumentSpec {
  readonly flags: string
  readonly text?: string
  readonly completes?: Completes
}

/** One command: what its line may hold, and what is told of it. Parsing, help, manual pages and completion are made from it. */
export interface CommandSpec {
  readonly name: string
  readonly text: string
  /** In the list of the command above it; without one it is `text`. */
  readonly summary?: string
  /** Behind its name, in place of what follows from options and arguments. */
  readonly usage?: string
  /** Of a program: valid for its commands, too. */
  readonly options?: readonly OptionSpec[]
  readonly arguments?: readonly ArgumentSpec[]
  readonly examples?: readonly string[]
  /** Lines below the examples. */
  readonly notes?: readonly string[]
  readonly commands?: readonly CommandSpec[]
  /** Does nothing by itself: one of `commands` must follow. */
  readonly group?: true
  /** What stands behind `--` is a command line for somebody else and none of our arguments. */
  readonly carries?: true
  /** Programs that are named as its commands are, first of all words, and are none of them. */
  readonly programs?: readonly string[]
  /** This installation does not have them. */
  readonly elsewhere?: true
  /** Told of an option that there is not. */
  readonly hint?: string
}

/** From the program to the command that is meant. */
export type CommandPath = readonly [CommandSpec, ...CommandSpec[]]

export const HELP_OPTION: OptionSpec = { flags: '-h, --help', text: 'show this help' }
export const VERSION_OPTION: OptionSpec = { flags: '--version', text: 'print the version' }

const FLAGS = /^(?:-(\w), )?--([\w-]+)( <.+>)?$/

export const optionParts = ({
  flags,
}: OptionSpec): { readonly name: string; readonly short: string | undefined; readonly takesValue: boolean } => {
  const [, short, name = '', value] = FLAGS.exec(flags) ?? []
  return { name, short, takesValue: value !== undefined }
}

export const argumentName = ({ flags }: ArgumentSpec): string => flags.slice(1, -1).replace('...', '')
export const isVariadic = ({ flags }: ArgumentSpec): boolean => flags.includes('...')

/** The options that the last command of a path takes: its own and the program's. */
export const optionsOf = (path: CommandPath): readonly OptionSpec[] => {
  const own = path.at(-1)?.options ?? []
  return path.length === 1 ? own : [...own, ...(path[0].options ?? [])]
}

/** `x0x contacts pin` */
export const pathText = (path: CommandPath): string => path.map(({ name }) => name).join(' ')

/** Behind the words of a command. */
export const usageOf = ({ usage, commands, arguments: words = [] }: CommandSpec): string =>
  usage ?? ['[options]', ...(commands === undefined ? [] : ['[command]']), ...words.map(({ flags }) => flags)].join(' ')
