import { AppError, errorText, isAppError } from '../../../base/errors.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { operate } from '../../../clients/operator.ts'
import { entryText, suggestionWarnings, unsuggestable } from '../../../policy/mesh/suggest.ts'
import { restartCommand } from '../../../supervision/restart-command.ts'
import { type Contact, meetProblem, nameProblem } from '../../../trust/contact.ts'
import {
  type InvitedParty,
  MAX_LINE,
  type ReadLine,
  SpokenCodes,
  TruncatedInvitation,
  codeProblem,
  isReplyPart,
  makeInvitation,
  makeReply,
  readInvitation,
  readReply,
} from '../../../trust/invitation.ts'
import type { CliContext } from '../context.ts'
import { carriedCommand, usageError } from '../failure.ts'
import { printHint, printJson } from '../print.ts'
import { Dialogue } from '../prompts.ts'

/** How often a line or code may be mistyped. */
const TRIES = 3

const START_AGAIN = 'Nothing was changed on this machine. Start again with x0x invite'

const wrongCode = (): AppError =>
  new AppError('conflict', 'the code is wrong: it was misheard or mistyped, or a line was changed on its way', {
    data: { next: START_AGAIN },
  })

/** Checks that the daemon would accept the contact, before two people compare codes. */
const assertMeetable = async (context: CliContext, name: string, { agent_id }: InvitedParty, own: InvitedParty): Promise<void> => {
  if (agent_id === own.agent_id)
    throw new AppError('conflict', 'this line is from this agent itself, which cannot pair with itself', {
      data: { next: 'Use the other machine. To use another daemon of this machine, add --name NAME' },
    })
  const { contacts } = await context.api.json<{ contacts: readonly Contact[] }>({ method: 'GET', path: '/contacts' })
  const problem = meetProblem(contacts, name, agent_id)
  if (problem !== null) throw new AppError('conflict', problem)
}

const assertName = (name: string, option: string): void => {
  const problem = nameProblem(name)
  if (problem !== null) throw usageError(`${option}: ${JSON.stringify(name)}: ${problem}`)
}

const ownParty = async (context: CliContext): Promise<InvitedParty> => {
  const { agent_id, machine_id, name, addresses } = await context.api.json<InvitedParty>({ method: 'GET', path: '/agent' })
  return { agent_id, machine_id, name, addresses }
}

const inDialogue = async <T>(context: CliContext, work: (dialogue: Dialogue) => Promise<T>): Promise<T> => {
  const dialogue = new Dialogue(context)
  try {
    return await work(dialogue)
  } finally {
    dialogue.close()
  }
}

/** A complete code is tried once, because a guesser must not have a second try. */
const whole = (text: string, what: 'code' | 'answer'): string => {
  const problem = codeProblem(text, what)
  if (problem !== null) throw new AppError('bad_request', problem)
  return text
}

/** Asks again after invalid input. An empty line does not count. `isPart`: more lines may follow. */
const askFor = async <T>(
  dialogue: Dialogue,
  question: string,
  read: (text: string) => T,
  isPart: (text: string) => boolean = () => false,
): Promise<T> => {
  let [begun, left] = ['', TRIES]
  for (;;) {
    const typed = await dialogue.ask(begun === '' ? question : '')
    if (typed === '' && begun === '') continue
    const isNew = typed === '' || isPart(typed)
    if (isNew && begun !== '') left = await failed(dialogue, new TruncatedInvitation(), left)
    begun = isNew ? typed : begun + typed
    if (begun === '') continue
    try {
      return read(begun)
    } catch (error) {
      if (!isAppError(error)) throw error
      if (isPart(begun) && begun.length < MAX_LINE && error instanceof TruncatedInvitation) {
        if (begun === typed) await dialogue.say('the line is incomplete: paste the rest, or press Enter to start again')
        continue
      }
      left = await failed(dialogue, error, left)
      begun = ''
    }
  }
}

/** Returns the number of tries left. Throws after the last one. */
const failed = async (dialogue: Dialogue, error: AppError, left: number): Promise<number> => {
  if (left === 1) throw new AppError(error.code, error.message, { data: { ...error.data, next: START_AGAIN } })
  await dialogue.say(shownLine(errorText(error)))
  return left - 1
}

/** Makes a trusted, pinned contact in one step, with the operator's proof. */
const meet = async (context: CliContext, name: string, { agent_id, machine_id, addresses }: InvitedParty): Promise<void> => {
  await operate(context, '/contacts/meet', { name, agent_id, machine_id, addresses })
}

const met = (name: string, { agent_id, machine_id }: InvitedParty): string =>
  shownLine(`${name}: trusted, pinned to ${machine_id.slice(0, 12)}, agent ${agent_id}`)

/** `x0x invite NAME [-- ARGV...]`. With a command, it prints the ACL entry that allows it. */
export const runInvite = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [name = ''] = line.words
  const argv = line.behindDashes === null ? null : carriedCommand(line, 1)
  const problem = argv === null ? null : unsuggestable(argv)
  if (problem !== null) throw new AppError('bad_request', `no entry can allow this command: ${problem}`)
  assertName(name, 'NAME')
  const own = await ownParty(context)
  const { line: invitation, encoded } = makeInvitation(own, Date.now())
  const { party } = await inDialogue(context, async (dialogue) => {
    await dialogue.say(`On the other machine, within an hour:\n\n  x0x join ${invitation}\n`)
    const reply = await askFor(dialogue, 'Paste the line that it prints: ', (text) => readReply(text, encoded, Date.now()), isReplyPart)
    await assertMeetable(context, name, reply.party, own)
    await compareAsInviter(dialogue, encoded, reply)
    await meet(context, name, reply.party)
    await dialogue.say(met(name, reply.party))
    if (argv !== null)
      await dialogue.say(shownLine(`Next, when the entry is in the ACL: ${await restartCommand(context.instance, context.api.paths)}`))
    for (const warning of suggestionWarnings(argv ?? [])) await dialogue.say(`careful: ${shownLine(warning)}`)
    return reply
  })
  if (argv !== null) await write(context.stdout, entryText({ ...party, description: name }, argv))
  else if (context.json) await printJson(context, { ok: true, ...party, name })
  return 0
}

const compareAsInviter = async (dialogue: Dialogue, invited: Uint8Array, { encoded: replied }: ReadLine): Promise<void> => {
  const codes = new SpokenCodes({ invited, replied })
  const code = codes.code()
  await dialogue.say(`\nRead this code to the person at the other machine:  ${code}\n`)
  const question = 'Type the four characters that are read back to you (no: they refused): '
  const answer = await askFor(dialogue, question, (text) => (text.toLowerCase() === 'no' ? null : whole(text, 'answer')))
  if (answer === null)
    throw new AppError('conflict', 'the other machine refused: nothing was changed on this one; find out why, then start again')
  if (!codes.isAnswer(answer, code)) throw wrongCode()
}

export const runJoin = async (context: CliContext, line: CommandLine): Promise<number> => {
  const invitation = readInvitation(line.words.join(''), Date.now())
  const name = line.value('as') ?? invitation.party.name
  assertName(name, '--as')
  const own = await ownParty(context)
  await assertMeetable(context, name, invitation.party, own)
  const reply = makeReply(own, invitation.encoded)
  await inDialogue(context, async (dialogue) => {
    await dialogue.say(`Paste this line where x0x invite waits:\n\n  ${reply.line}\n`)
    const codes = new SpokenCodes({ invited: invitation.encoded, replied: reply.encoded })
    const answer = codes.answerTo(await askFor(dialogue, 'Type the code that is read to you: ', (text) => whole(text, 'code')))
    if (answer === null) throw wrongCode()
    await meet(context, name, invitation.party)
    await dialogue.say(`\nRead this back aloud:  ${answer}\n`)
    await dialogue.say(met(name, invitation.party))
  })
  if (context.json) await printJson(context, { ok: true, ...invitation.party, name })
  else await printHint(context, `Next: x0x exec ${name} -- COMMAND, when ${name} allows it`)
  return 0
}
