import { colourOf, rexecLine } from '../../cli/rexec.ts'

/** What the command line says of the host. */
export interface HostFlags {
  /** Shows no commands. */
  readonly silent: boolean
  /** Programs of the user's own directories are found by their names. */
  readonly addPath: boolean
  /** The transcript has the values of variables that clients give, too. */
  readonly recordEnv: boolean
  /** Nothing is drawn anew. */
  readonly plain: boolean
  /** Null: no flag says. */
  readonly colour: boolean | null
  /** Journals of other doors. */
  readonly journals: readonly string[]
  /** Null: the configuration does not choose among hosts. */
  readonly config: string | null
}

/** Parses the words behind the program's name; a text where help or the version was asked for. Throws `bad_config`. */
export const parseHostFlags = (argv: readonly string[]): HostFlags | string => {
  const line = rexecLine(argv)
  if (typeof line === 'string') return line
  return {
    silent: line.has('silent'),
    addPath: !line.has('no-add-path'),
    recordEnv: line.has('record-env'),
    plain: line.has('plain'),
    colour: colourOf(line),
    journals: line.values('watch-journal'),
    config: line.value('config'),
  }
}
