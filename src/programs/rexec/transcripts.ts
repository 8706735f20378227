import { Transcripts } from '../../audit/transcripts/transcripts.ts'
import { badFlags } from '../../command-line/program-line.ts'
import type { CommandLine } from '../../command-line/parse.ts'
import { REXEC } from '../../command-line/rexec.ts'
import type { Environment } from '../../base/environment.ts'
import { entryText, linesText, noteText, oursLine } from '../../doors/console/entry-text.ts'
import { pageOf } from './page.ts'
import { write } from './tell.ts'
import { printUntilEnded } from './until-ended.ts'

/** `--list [N]`: newest first. */
export const listTranscripts = async (line: CommandLine): Promise<number> => {
  const count = line.value('list') ?? ''
  if (!/^[0-9]{1,6}$/.test(count)) throw badFlags(`--list: ${JSON.stringify(count)} is no count`, REXEC.name)
  for (const { name, commands } of await new Transcripts(null).list(Number(count))) await write(`${name} commands=${commands}\n`)
  return 0
}

/** `--print [--follow] NAME`: as the console shows them. */
export const printTranscript = async (line: CommandLine, env: Environment): Promise<number> => {
  const [name, ...more] = line.words
  if (name === undefined || more.length > 0)
    throw badFlags('--print takes the name of one transcript; rexec --list 10 names them', REXEC.name)
  const transcripts = new Transcripts(null)
  const page = pageOf(env, null)
  const ours = (text: string) => linesText([oursLine(text, page.look), oursLine('', page.look)], page)
  await printUntilEnded(async function* (signal) {
    const lines = line.has('follow') ? transcripts.follow(name, signal) : transcripts.read(name, signal)
    for await (const one of lines)
      yield 'entry' in one ? entryText(one.entry, page) : ours(noteText(`line ${one.number} is no entry: ${one.problem}`))
  })
  return 0
}
