import type { Environment } from '../../base/environment.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { REXEC } from '../../cli/rexec.ts'
import { pageOf, transcriptLineText } from '../../doors/console/entry-text.ts'
import { onStopSignal } from '../../supervision/program-exit.ts'
import { untilEnded, write } from '../../supervision/program-output.ts'
import { followTranscript } from '../../transcripts/follow-transcript.ts'
import { listTranscripts } from '../../transcripts/list-transcripts.ts'
import { readTranscript } from '../../transcripts/read-transcript.ts'
import { transcriptsDir } from '../../transcripts/transcript-directory.ts'

/** `--list [N]`: newest first. */
export const printList = async (line: CommandLine): Promise<number> => {
  const count = line.value('list') ?? ''
  if (!/^[0-9]{1,6}$/.test(count)) throw badFlags(`--list: ${JSON.stringify(count)} is no count`, REXEC.name)
  for (const { name, commands } of await listTranscripts(transcriptsDir(), Number(count)))
    await write(process.stdout, `${name} commands=${commands}\n`)
  return 0
}

/** `--print [--follow] NAME`: as the console shows them. */
export const printTranscript = async (line: CommandLine, env: Environment): Promise<number> => {
  const [name, ...more] = line.words
  if (name === undefined || more.length > 0)
    throw badFlags('--print takes the name of one transcript; rexec --list 10 names them', REXEC.name)
  const page = pageOf(process.stdout, env, null)
  return untilEnded({ stdout: process.stdout, onSignal: onStopSignal }, async (signal) => {
    const lines = (line.has('follow') ? followTranscript : readTranscript)(transcriptsDir(), name, signal)
    for await (const one of lines) if (!(await write(process.stdout, transcriptLineText(one, page)))) break
  })
}
