import { hasNativePrimitives, nativePrimitives } from './native-primitives.ts'
import { noblePrimitives } from './noble-primitives.ts'
import type { Primitives } from './primitives-interface.ts'

let chosen: Primitives | undefined

/** The runtime's own primitives where it has them, else the library's; `X0X_CRYPTO=noble` forces the library. */
export const primitives = (): Primitives =>
  (chosen ??= process.env['X0X_CRYPTO'] !== 'noble' && hasNativePrimitives() ? nativePrimitives : noblePrimitives)
