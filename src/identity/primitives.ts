import { AppError } from '../base/errors.ts'
import { hasNativePrimitives, nativePrimitives } from './native-primitives.ts'
import type { Primitives } from './primitives-interface.ts'

let chosen: Primitives | undefined

const native = (): Primitives | undefined => (process.env['X0X_CRYPTO'] !== 'noble' && hasNativePrimitives() ? nativePrimitives : undefined)

/** Loads the JavaScript library if the runtime lacks the primitives. It takes some megabytes of memory. */
export const loadPrimitives = async (): Promise<void> => {
  chosen ??= native() ?? (await import('./noble-primitives.ts')).noblePrimitives
}

/** The runtime's primitives or, after `loadPrimitives`, the library's. `X0X_CRYPTO=noble` forces the library. */
export const primitives = (): Primitives => {
  chosen ??= native()
  if (chosen === undefined) throw new AppError('internal', 'the post-quantum primitives were not loaded')
  return chosen
}
