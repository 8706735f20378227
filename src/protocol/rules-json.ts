import { denialReason, hexId, requestId } from './api-fields.ts'
import type { ExecRule } from './exec.ts'
import { type Sent, count, flag, list, orNull, record, text, texts } from './json-table.ts'

const DETACH = { lifetime_ms: count, keep_bytes: count.says('of its output, both streams together') }

/** What `GET /exec/rules` answers and `x0x acl mine --json` prints; the rules are in the order of the ACL there. Descriptions show all their characters. */
export const RULES = {
  ok: flag.says('the agent said which; false for a denial'),
  request_id: requestId,
  agent_id: hexId,
  machine_id: hexId,
  denial_reason: orNull(denialReason),
  rules: list(
    record({
      description: orNull(text).says('of the ACL entry, as its operator wrote it: a foreign text'),
      argv: texts.says('literals and the templates <INT> and <URL_PATH>'),
      timeout_ms: count,
      max_stdout_bytes: count,
      max_stderr_bytes: count,
      max_stdin_bytes: count.says('0: it takes no stdin'),
      detach: orNull(record(DETACH)).says('of a run that outlives its caller; null: no run of it may'),
    }),
  ),
  left_out: count.says('commands that did not fit the answer'),
}
export type RulesJson = Omit<Sent<typeof RULES>, 'rules'> & { readonly rules: readonly ExecRule[] }
