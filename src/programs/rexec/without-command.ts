import type { Environment } from '../../base/environment.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { colourOf } from '../../cli/rexec.ts'
import { printFailure } from '../../supervision/program-exit.ts'
import { attach } from './attach.ts'
import { installUnit } from './install.ts'
import { EXIT_NO_HOST } from './tell.ts'
import { printList, printTranscript } from './transcripts.ts'

/** Does what a line without a command asks for, in a bundle of its own: its errors are reported here, for those of another bundle are of another class. */
export const withoutCommand = async (line: CommandLine, env: Environment): Promise<number> => {
  try {
    if (line.has('list')) return await printList(line)
    if (line.has('print')) return await printTranscript(line, env)
    if (line.has('install')) return await installUnit(env)
    return await attach(env, { colour: colourOf(line) })
  } catch (error) {
    return printFailure('rexec', error, EXIT_NO_HOST)
  }
}
