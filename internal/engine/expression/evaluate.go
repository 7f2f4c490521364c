package expression

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ErrNegative means that the result is negative (SS-137).
var ErrNegative = errors.New("calculation result is negative")

// ErrTooLarge means that no Kubernetes quantity can represent the result.
var ErrTooLarge = errors.New("calculation result is too large")

// Evaluate computes the expression for a value of the variable. It computes exactly, and truncates the result
// to thousandths of a core or whole bytes (SS-141). The errors are [ErrNegative] and [ErrTooLarge].
func (e *Expression) Evaluate(variable resource.Quantity) (resource.Quantity, error) {
	result := e.root.evaluate(exact(variable))
	if result.Sign() < 0 {
		return resource.Quantity{}, fmt.Errorf("%w: %s", ErrNegative,
			strings.TrimSuffix(result.FloatString(3), ".000"))
	}
	if result.Cmp(new(big.Rat).SetInt64(math.MaxInt64)) > 0 {
		return resource.Quantity{}, fmt.Errorf("%w: %s", ErrTooLarge, result.FloatString(0))
	}
	if e.variable == Memory {
		return bytes(whole(result).Int64()), nil
	}

	milli := whole(new(big.Rat).Mul(result, power(1000, 1)))
	if milli.IsInt64() {
		return *resource.NewMilliQuantity(milli.Int64(), resource.DecimalSI), nil
	}

	out, err := resource.ParseQuantity(milli.String() + "m")
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("writing the result %sm: %w", milli, err)
	}

	return out, nil
}

// whole returns the value without its fraction.
func whole(r *big.Rat) *big.Int { return new(big.Int).Quo(r.Num(), r.Denom()) }

// exact returns the value of a quantity.
func exact(q resource.Quantity) *big.Rat {
	decimal := q.DeepCopy()
	dec := decimal.AsDec()
	out := new(big.Rat).SetInt(dec.UnscaledBig())
	if scale := int64(dec.Scale()); scale > 0 {
		return out.Quo(out, power(10, scale))
	} else if scale < 0 {
		return out.Mul(out, power(10, -scale))
	}
	return out
}

// bytes returns a quantity that is written with decimal or binary suffixes, whichever is shorter.
func bytes(n int64) resource.Quantity {
	decimal, binary := resource.NewQuantity(n, resource.DecimalSI), resource.NewQuantity(n, resource.BinarySI)
	if len(binary.String()) < len(decimal.String()) {
		return *binary
	}
	return *decimal
}

// Constant reports whether the variable does not occur in the expression.
func (e *Expression) Constant() bool { return e.root.constant != nil }
