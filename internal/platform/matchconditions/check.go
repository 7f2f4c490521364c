package matchconditions

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

// known lists the functions that the project's expressions may call. None of them fails for values of the
// right type. Functions that can fail, such as the conversion of a string to a number, must not be listed.
var known = []string{"_&&_", "_||_", "!_", "@in", "_==_", "_!=_", "_[_]", "startsWith", "@not_strictly_false"}

// samples holds requests with few and with many fields, one group for creations and one for other operations.
// An entry is for one group only, and its expressions must evaluate without error for all requests of that
// group.
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

// Checker checks expressions before they are written. The API server rejects every request for which an
// expression fails, so an expression that always fails would block the creation of pods in the whole cluster.
type Checker struct{ env *cel.Env }

// NewChecker returns a Checker.
func NewChecker() (*Checker, error) {
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("request", cel.DynType))
	if err != nil {
		return nil, fmt.Errorf("making the environment of match conditions: %w", err)
	}
	return &Checker{env}, nil
}

// costLimit is a tenth of the API server's cost limit for a match condition.
const costLimit = 250_000

// Check returns an error if the expression must not be written because it does not compile or may fail when
// it is evaluated.
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
