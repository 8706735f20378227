import { readFileSync } from 'node:fs'
import { AppError, errnoOf, isAppError } from '../base/errors.ts'
import { OPERATOR_PROOF_HEADER, RUN_OPERATION, decodeOperatorKey, proveOperation } from '../identity/operator-proof.ts'
import type { LocalApi } from './daemon.ts'

/** Routes that only operators may use, with the operation that each proof names. */
const OPERATION_OF = {
  '/agent/card/import': 'card_import',
  '/agent/revoke': 'identity_revoke',
  '/keys/rotate-token': 'token_rotate',
  '/acl/sign': 'acl_sign',
  '/contacts/meet': 'contact_meet',
  '/contacts/trust': 'contact_trust',
  '/contacts/pin': 'contact_pin',
  '/contacts/unpin': 'contact_unpin',
  '/contacts/label': 'contact_label',
  '/contacts/remove': 'contact_remove',
  '/enrol/create': 'enrol_create',
  '/enrol/list': 'enrol_list',
  '/enrol/revoke': 'enrol_revoke',
  '/exec/cancel': 'exec_cancel',
  '/exec/incoming': 'exec_incoming',
  '/exec/incoming/cancel': 'exec_incoming_cancel',
} as const

export const operatorKey = (path: string): Uint8Array => {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    const missing = errnoOf(error) === 'ENOENT'
    throw new AppError('operator_proof_required', `${path} ${missing ? 'is missing' : 'may not be read by this user'}`, { cause: error })
  }
  const key = decodeOperatorKey(text)
  if (key === null)
    throw new AppError('bad_key_file', `${path} is not an operator key; delete it, and the next start of x0xd makes a new one`)
  return key
}

/** Reads the operator key. Without a key, a daemon that does not run is the error to report. */
const keyOf = async (api: LocalApi): Promise<ReturnType<typeof operatorKey>> => {
  try {
    return operatorKey(api.paths.operatorKey)
  } catch (error) {
    await api.json({ method: 'GET', path: '/agent' }).catch((unreachable: unknown) => {
      if (isAppError(unreachable, 'daemon_unreachable')) throw unreachable
    })
    throw error
  }
}

/** Calls such a route. The body carries a proof over its exact bytes, which only a reader of `operator.key` can make. */
export const operate = async <T>({ api }: { readonly api: LocalApi }, path: keyof typeof OPERATION_OF, body: object): Promise<T> => {
  if (!api.isLocal)
    throw new AppError(
      'operator_proof_required',
      'an operator proves changes on the machine of the daemon only, not through --api to another',
    )
  const text = JSON.stringify(body)
  const proof = proveOperation(await keyOf(api), OPERATION_OF[path], Buffer.from(text), Date.now())
  return api.json<T>({ method: 'POST', path, body: text, headers: { [OPERATOR_PROOF_HEADER]: proof } })
}

/** Makes the header that proves a request object over its exact text. */
export type RunProver = (request: string) => Readonly<Record<string, string>>

/** Proves runs, or the `operation` given. Throws `operator_proof_required` or `bad_key_file` if a proof cannot be made. */
export const runProver = ({ api }: { readonly api: LocalApi }, operation: string = RUN_OPERATION): RunProver => {
  // Another daemon would reject this proof, and so refuse what it allows without one.
  if (!api.isOwn)
    throw new AppError(
      'operator_proof_required',
      'only operators may do this, and --api is not the daemon of this data directory: use --data-dir of that daemon instead',
    )
  const key = operatorKey(api.paths.operatorKey)
  return (request) => ({ [OPERATOR_PROOF_HEADER]: proveOperation(key, operation, Buffer.from(request), Date.now()) })
}
