package matchconditions

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

// known are the functions that expressions of the project are made of. None of them fails for values of the
// right sort; what could, such as a conversion of texts to numbers, is none of them.
var known = []string{"_&&_", "_||_", "!_", "@in", "_==_", "_!=_", "_[_]", "startsWith", "@not_strictly_false"}

// samples are requests with little and with much in them, creations and others: an entry is for the one or
// the other, and its expressions must have an answer to these.
var samples = [][]map[string]any{
	{sample("CREATE", map[string]any{
		"metadata": map[string]any{},
		"spec":     map[string]any{},
		"status":   map[string]any{},
	}, nil),
		sample("CREATE", full, nil)},
	{sample("UPDATE", full, full), sample("DELETE", nil, full)},
}

var full = map[string]any{
	"metadata": map[string]any{
		"name":        "web",
		"namespace":   "shop",
		"generation":  int64(1),
		"labels":      map[string]any{"app": "web"},
		"annotations": map[string]any{"a": "b"},
		"ownerReferences": []any{map[string]any{"kind": "Set", "name": "web"},
			map[string]any{"kind": "Set", "name": "web", "controller": true}},
	},
	"spec":   map[string]any{"readinessGates": []any{map[string]any{"conditionType": "Ready"}}},
	"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
}

func sample(operation string, object, old any) map[string]any {
	return map[string]any{
		"object":    object,
		"oldObject": old,
		"request":   map[string]any{"operation": operation, "namespace": "shop", "name": "web"},
	}
}

// Checker checks expressions before they are written. An API server refuses each request for which the
// expression of an entry fails, so that one that fails for all of them would end the creation of pods in the
// whole cluster.
type Checker struct{ env *cel.Env }

// NewChecker returns a checker.
func NewChecker() (*Checker, error) {
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("request", cel.DynType))
	if err != nil {
		return nil, fmt.Errorf("making the environment of match conditions: %w", err)
	}
	return &Checker{env}, nil
}

// costLimit is a tenth of what API servers grant to a match condition.
const costLimit = 250_000

// Check returns why an expression must not be written: it cannot be compiled, or it may fail when it is
// evaluated.
func (c *Checker) Check(expression string) error {
	tree, issues := c.env.Compile(expression)
	if issues.Err() != nil {
		return fmt.Errorf("compiling a match condition: %w", issues.Err())
	}

	var foreign []string
	ast.PreOrderVisit(tree.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		for _, name := range known {
			if e.AsCall().FunctionName() == name {
				return
			}
		}
		foreign = append(foreign, e.AsCall().FunctionName())
	}))
	if len(foreign) > 0 {
		return fmt.Errorf("a match condition calls %s, and could fail", strings.Join(foreign, ", "))
	}

	program, err := c.env.Program(tree, cel.CostLimit(costLimit))
	if err != nil {
		return fmt.Errorf("compiling a match condition: %w", err)
	}

	var failed error
	for _, group := range samples {
		if failed = answersAll(program, group); failed == nil {
			return nil
		}
	}

	return failed
}

func answersAll(program cel.Program, requests []map[string]any) error {
	for _, r := range requests {
		value, _, err := program.Eval(r)
		if err != nil {
			return fmt.Errorf("a match condition fails: %w", err)
		}
		if _, ok := value.Value().(bool); !ok {
			return errors.New("a match condition is neither true nor false")
		}
	}
	return nil
}
