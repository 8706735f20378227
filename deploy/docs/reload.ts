import type { ReloadOutcome } from '../../src/executor/acl-reload.ts'
import { RELOADED } from '../../src/programs/x0xd/main.ts'
import { code, table } from './table.ts'

/** The meaning of each outcome, and the next action of the operator. */
const OUTCOMES: Readonly<Record<ReloadOutcome, readonly [meaning: string, next: string]>> = {
  taken: ['The file allows less than before, and is in force.', 'Nothing.'],
  unchanged: ['The file allows the same as before.', 'Nothing.'],
  refused: ['The file allows more. The permissions in force stay.', 'Restart the daemon when its runs may end.'],
  invalid: ['The file is not valid. The permissions in force stay.', 'Read the reason in `journalctl -u x0xd`.'],
}

/** The results of a reload, as `systemctl status` shows them. */
export const reloadOutcomes = (): string =>
  table(
    ['The status line ends with', 'Meaning', 'Next'],
    (Object.keys(OUTCOMES) as ReloadOutcome[]).map((outcome) => {
      const text = RELOADED[outcome].replace(/^; /, '')
      return [text === '' ? '(no such text)' : code(text), ...OUTCOMES[outcome]]
    }),
  )
