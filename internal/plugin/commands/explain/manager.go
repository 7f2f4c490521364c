package explain

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/apiserver"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/registry"
)

// managerName is the name of the manager's Deployment.
const managerName = "kruise-controller-manager"

// environment returns the inputs of plans that do not come from objects: the gates and flags of the manager,
// and the abilities of the API server.
func (r *Reader) environment(ctx context.Context, w *World) (*framework.Environment, error) {
	var gates string
	e := &framework.Environment{}

	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.SetOutput(io.Discard)
	flags.StringVar(&gates, "feature-gates", "", "")
	e.Flags.AddTo(flags, registry.Kinds)

	args, err := r.arguments(ctx)
	if err == nil {
		err = flags.Parse(args)
	}
	if err != nil {
		w.Notes = append(w.Notes,
			fmt.Sprintf("the flags of the manager are not known, its defaults are taken: %v", err))
	}

	if e.Gates, err = gatesOf(w, gates); err != nil {
		return nil, err
	}

	if e.InPlace, err = apiserver.InPlace(r.config, e.Gates); err != nil {
		return nil, err
	}

	e.Resizes = func(gate featuregate.Feature) (bool, error) {
		return apiserver.Resizes(r.config, e.Gates, gate)
	}

	e.Namespace = r.managerNamespace
	e.Minor, err = apiserver.Minor(ctx, r.config)
	return e, err
}

// gatesOf returns the manager's feature gates, and adds a note for each gate that the plugin does not know.
func gatesOf(w *World, list string) (*features.Gates, error) {
	gates, unknown, err := Gates(list)
	for _, gate := range unknown {
		w.Notes = append(w.Notes,
			"the manager has a feature gate that this plugin does not know, and leaves out: "+gate)
	}
	return gates, err
}

// Gates parses the feature gates of a manager that may be newer than the plugin. It skips gates that the
// plugin does not know, and returns them as unknown.
func Gates(list string) (gates *features.Gates, unknown []string, err error) {
	var known []string
	for _, gate := range strings.Split(list, ",") {
		if _, err := features.Parse(gate); err != nil {
			unknown = append(unknown, strings.TrimSpace(gate))
			continue
		}
		known = append(known, gate)
	}

	if gates, err = features.Parse(strings.Join(known, ",")); err != nil {
		return nil, unknown, fmt.Errorf("feature gates of the manager: %w", err)
	}
	return gates, unknown, nil
}

// arguments returns the command-line arguments of the manager.
func (r *Reader) arguments(ctx context.Context) ([]string, error) {
	if r.flags != nil {
		return r.flags, nil
	}

	var deployment appsv1.Deployment
	name := types.NamespacedName{Namespace: r.managerNamespace, Name: managerName}
	if err := r.client.Get(ctx, name, &deployment); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, fmt.Errorf(
				"there is no Deployment %s in namespace %s (--manager-namespace says another one)",
				name.Name, name.Namespace)
		}
		return nil, err //nolint:wrapcheck // the API server names the object
	}

	for _, container := range deployment.Spec.Template.Spec.Containers {
		args := append(container.Command[min(1, len(container.Command)):], container.Args...)
		if strings.Contains(container.Name, "manager") ||
			len(deployment.Spec.Template.Spec.Containers) == 1 {
			return args, nil
		}
	}
	return nil, fmt.Errorf("deployment %s has no container manager", managerName)
}
