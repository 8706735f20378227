import { v7 } from 'uuid'
import type { RequestId } from '../protocol/ids.ts'

/** A new UUIDv7 (RFC 9562). */
export const newRequestId = (): RequestId => v7()
