package expression

import (
	"fmt"
	"math/big"
	"strings"
)

// These are the limits of expressions. Longer texts, larger exponents and deeper nesting are rejected: no
// resource needs them, and they would take long to compute.
const (
	maxLength   = 10000
	maxExponent = 100
	maxDepth    = 500
)

type tokenKind int

const (
	tokenEnd tokenKind = iota
	tokenNumber
	tokenQuantity
	tokenName
	tokenSymbol
)

type token struct {
	kind  tokenKind
	text  string
	value *big.Rat
	at    int
}

func (t token) String() string {
	if t.kind == tokenEnd {
		return "the end"
	}
	return fmt.Sprintf("%q at character %d", t.text, t.at+1)
}

// units are the suffixes of quantities; they are case-sensitive.
var units = map[string]*big.Rat{
	"m": big.NewRat(1, 1000),
	"k": power(1000, 1), "M": power(1000, 2), "G": power(1000, 3), "T": power(1000, 4), "P": power(1000, 5),
	"Ki": power(1024, 1), "Mi": power(1024, 2), "Gi": power(1024, 3), "Ti": power(1024, 4),
	"Pi": power(1024, 5),
}

func power(base, exponent int64) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(base), big.NewInt(exponent), nil))
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }

// lex returns the tokens of the text, the last of which is tokenEnd.
func lex(text string) ([]token, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("the expression is longer than %d characters", maxLength)
	}

	var tokens []token
	for at := 0; at < len(text); {
		c := text[at]
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			at++
		case isDigit(c) || c == '.':
			end := at
			for end < len(text) && (isDigit(text[end]) || isLetter(text[end]) || text[end] == '.' ||
				text[end] == '%' || sign(text, end)) {
				end++
			}
			number, err := literal(text[at:end], at)
			if err != nil {
				return nil, err
			}
			tokens, at = append(tokens, number), end
		case isLetter(c):
			end := at
			for end < len(text) && (isLetter(text[end]) || isDigit(text[end])) {
				end++
			}
			tokens = append(tokens, token{kind: tokenName, text: text[at:end], at: at})
			at = end
		case strings.IndexByte("+-*/(),", c) >= 0:
			tokens = append(tokens, token{kind: tokenSymbol, text: text[at : at+1], at: at})
			at++
		default:
			return nil, fmt.Errorf("unexpected character %q at character %d", []rune(text[at:])[0], at+1)
		}
	}

	return append(tokens, token{kind: tokenEnd, at: len(text)}), nil
}

// sign reports whether the character is the sign of an exponent, not an operator: it comes after an e that
// follows a digit or a dot, and before a digit.
func sign(text string, at int) bool {
	return (text[at] == '+' || text[at] == '-') && at >= 2 && at+1 < len(text) &&
		(text[at-1] == 'e' || text[at-1] == 'E') &&
		(isDigit(text[at-2]) || text[at-2] == '.') && isDigit(text[at+1])
}

// literal parses a number, percentage or quantity. text contains all characters that could belong to it, so
// that nothing is cut off silently.
func literal(text string, at int) (token, error) {
	out := token{kind: tokenNumber, text: text, at: at}
	malformed := fmt.Errorf("malformed number %s", out)

	end, digits, dots := 0, 0, 0
	for end < len(text) && (isDigit(text[end]) || text[end] == '.') {
		if text[end] == '.' {
			dots++
		} else {
			digits++
		}
		end++
	}

	if digits == 0 || dots > 1 {
		return token{}, malformed
	}

	exponent := 0
	if from := end; from < len(text) && (text[from] == 'e' || text[from] == 'E') {
		end++
		negative := end < len(text) && text[end] == '-'
		if end < len(text) && (text[end] == '-' || text[end] == '+') {
			end++
		}
		first := end
		for ; end < len(text) && isDigit(text[end]); end++ {
			if exponent = exponent*10 + int(text[end]-'0'); exponent > maxExponent {
				return token{}, fmt.Errorf("the exponent of %s is more than %d", out, maxExponent)
			}
		}
		if first == end {
			return token{}, malformed // an exponent needs digits, so 1E is not a quantity here
		}
		if negative {
			exponent = -exponent
		}
		if !out.setMantissa(text[:from]) {
			return token{}, malformed
		}
	} else if !out.setMantissa(text[:end]) {
		return token{}, malformed
	}

	if exponent < 0 {
		out.value.Quo(out.value, power(10, int64(-exponent)))
	} else {
		out.value.Mul(out.value, power(10, int64(exponent)))
	}

	switch suffix := text[end:]; {
	case suffix == "":
	case suffix == "%":
		out.value.Quo(out.value, power(100, 1))
	case units[suffix] != nil:
		out.kind = tokenQuantity
		out.value.Mul(out.value, units[suffix])
	default:
		return token{}, malformed
	}

	return out, nil
}

// setMantissa parses digits with at most one dot, always in base 10, even with leading zeros.
func (t *token) setMantissa(text string) bool {
	whole, fraction, _ := strings.Cut(text, ".")
	digits, ok := new(big.Int).SetString(whole+fraction, 10)
	if !ok {
		return false
	}
	t.value = new(big.Rat).SetFrac(digits,
		new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(fraction))), nil))
	return true
}
