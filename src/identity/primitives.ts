import { AppError } from '../base/errors.ts'
import { hasNativePrimitives, nativePrimitives } from './native-primitives.ts'
import type { Primitives } from './primitives-interface.ts'

let chosen: Primitives | undefined

const native = (): Primitives | undefined => (process.env['X0X_CRYPTO'] !== 'noble' && hasNativePrimitives() ? nativePrimitives : undefined)

/** Loads the library where `primitives` will need it: it keeps some megabytes of tables and code, which a runtime with its own does not need. */
export const loadPrimitives = async (): Promise<void> => {
  chosen ??= native() ?? (await import('./noble-primitives.ts')).noblePrimitives
}

/** The runtime's own primitives where it has them, else the library's, after `loadPrimitives`; `X0X_CRYPTO=noble` forces the library. */
export const primitives = (): Primitives => {
  chosen ??= native()
  if (chosen === undefined) throw new AppError('internal', 'the post-quantum primitives were not loaded')
  return chosen
}
