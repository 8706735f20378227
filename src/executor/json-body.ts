import { AppError, errorText } from '../base/errors.ts'
import { type FieldTable, type Sent, closedProblemOf, isTable, withoutNulls } from '../protocol/json-table.ts'

/**
 * Parses a JSON object with exactly these fields. Null means that an optional field is absent. Throws `bad_request` with the field's name.
 */
export const parseBody = <T extends FieldTable>(bytes: Uint8Array, stated: T): Sent<T> => {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes))
  } catch (error) {
    throw new AppError('bad_request', `the body is not JSON: ${errorText(error)}`, { cause: error })
  }
  if (!isTable(value)) throw new AppError('bad_request', 'the body is not a JSON object')
  const fields = withoutNulls(value, stated)
  const problem = closedProblemOf(fields, stated)
  if (problem !== null) throw new AppError('bad_request', problem)
  return fields as Sent<T>
}
