import type { Environment } from '../../base/environment.ts'
import type { CommandLine } from '../../command-line/parse.ts'
import { colourOf } from '../../command-line/rexec.ts'
import { attach } from './attach.ts'
import { installUnit } from './install.ts'
import { reported } from './reported.ts'
import { printList, printTranscript } from './transcripts.ts'

/** Does what a line without a command asks for, in a bundle of its own: its errors are reported here, for those of another bundle are of another class. */
export const withoutCommand = async (line: CommandLine, env: Environment): Promise<number> =>
  reported(async () => {
    if (line.has('list')) return printList(line)
    if (line.has('print')) return printTranscript(line, env)
    if (line.has('install')) return installUnit(env)
    return attach(env, { colour: colourOf(line) })
  })
