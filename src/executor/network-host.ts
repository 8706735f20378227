import type { AppError } from '../base/errors.ts'
import type { NetworkSettings } from './port/messages.ts'

/** Who started a network half: what it is to be told, and who hears how it fares. */
export interface NetworkHost {
  readonly settings: NetworkSettings
  /** It listens; once, when all is well. */
  onReady(apiPort: number): void
  /** It could not begin, and ends. */
  onFailed(error: AppError): void
}
