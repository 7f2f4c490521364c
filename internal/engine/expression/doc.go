// Package expression computes the resources of sidecars from those of a pod's containers (SS-138 to SS-142).
//
// An expression consists of numbers (42, .5, 1e3), percentages (50%), quantities (100m, 1.5Gi), the variable
// cpu or memory, parentheses, a unary minus, + - * /, and max and min of two values. Names are not
// case-sensitive.
//
// Every value is a number or a quantity, and the parser determines which of the two: the variable is a
// quantity, two quantities cannot be multiplied, and nothing can be divided by a quantity. So a number never
// depends on the variable, and a division by zero is found when the expression is parsed, like all other
// mistakes. Only the sign and the size of the result are left to [Expression.Evaluate].
//
// Values are rational numbers of cores or bytes. Only the result is truncated, to thousandths of a core or
// whole bytes.
package expression
