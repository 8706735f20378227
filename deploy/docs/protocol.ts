import { APPROVAL_REQUEST_DOMAIN, APPROVAL_STATEMENT_DOMAIN } from '../../src/protocol/wire/approval-statement.ts'
import { ACL_BUNDLE_DOMAIN } from '../../src/policy/mesh/acl-bundle.ts'
import { ANNOUNCE_DOMAIN, CARD_DOMAIN } from '../../src/protocol/wire/card.ts'
import { EXEC_DETACHED_ASK_DOMAIN, EXEC_DETACH_REQUEST_DOMAIN } from '../../src/protocol/wire/detached.ts'
import { REVOCATION_DOMAIN, SUCCESSION_DOMAIN } from '../../src/protocol/wire/dm.ts'
import { EXEC_EXIT_DOMAIN, EXEC_REQUEST_DOMAIN, EXEC_RULES_DOMAIN, EXEC_RULES_REQUEST_DOMAIN } from '../../src/protocol/wire/exec.ts'
import { LINK_DOMAINS } from '../../src/protocol/wire/link.ts'
import { BATCH_DOMAIN } from '../../src/identity/signing.ts'
import { code, table } from './table.ts'

const LINK_TEXT: Readonly<Record<keyof typeof LINK_DOMAINS, readonly [key: string, body: string]>> = {
  responder_agent: ["the responder's agent", 'T_R (section 4)'],
  responder_machine: ["the responder's machine", 'T_R'],
  initiator_agent: ["the initiator's agent", 'T_I (section 4)'],
  initiator_machine: ["the initiator's machine", 'T_I'],
}
const LINKS = Object.entries(LINK_TEXT).map(([role, [key, body]]) => [LINK_DOMAINS[role as keyof typeof LINK_DOMAINS], key, body] as const)

/** Domains of the signatures on the wire, with the signing key and the signed body. */
const ROWS: readonly (readonly [domain: string, key: string, body: string])[] = [
  [CARD_DOMAIN, 'agent', '`card-body`, for people'],
  [ANNOUNCE_DOMAIN, 'agent', '`card-body`, for daemons'],
  [REVOCATION_DOMAIN, 'the revoked agent', '`revocation-body`'],
  [SUCCESSION_DOMAIN, 'both keys of the agent', '`succession-body`'],
  ...LINKS,
  [EXEC_REQUEST_DOMAIN, 'requester', '`exec-request`'],
  [EXEC_EXIT_DOMAIN, 'target', '`exec-exit`'],
  [EXEC_RULES_REQUEST_DOMAIN, 'requester', '`exec-rules-request`'],
  [EXEC_RULES_DOMAIN, 'target', '`exec-detach-rules`'],
  [EXEC_DETACH_REQUEST_DOMAIN, 'requester', '`exec-detach-request`'],
  [EXEC_DETACHED_ASK_DOMAIN, 'requester', '`exec-detached-ask`'],
  [APPROVAL_REQUEST_DOMAIN, 'target', '`approval-request`'],
  [APPROVAL_STATEMENT_DOMAIN, 'approver', '`approval-statement`'],
  [ACL_BUNDLE_DOMAIN, "the operator's agent", '`acl-statement`, in a [file](fleet-acls.md)'],
  [BATCH_DOMAIN, 'requester', 'size and root of a batch'],
]

export const signatureDomains = (): string =>
  table(
    ['domain', 'key', 'body'],
    ROWS.map(([domain, key, body]) => [code(domain), key, body]),
  )
