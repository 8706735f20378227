import { v7 } from 'uuid'
import type { RequestId } from '../protocol/ids.ts'

export const newRequestId = (): RequestId => v7()
