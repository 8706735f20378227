import { v7 } from 'uuid'
import type { RequestId } from '../protocol/ids.ts'

/** A fresh UUIDv7 (RFC 9562). */
export const newRequestId = (): RequestId => v7()
