package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

const (
	// restartedAt is the annotation by which kubectl restarts the kinds of Kubernetes.
	restartedAt = "kubectl.kubernetes.io/restartedAt"
	// restartedEnv is the environment variable that restarts the kinds that are updated in place, because
	// these kinds apply an annotation without a restart.
	restartedEnv = "RESTARTED_AT"
)

func newRestart(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	inPlace := false
	cmd := editing(f, change.NewCommand("restarted", streams), followed,
		func(object *unstructured.Unstructured) error {
			return Restart(object, time.Now(), inPlace)
		})
	cmd.Use, cmd.Short = "restart RESOURCE", "Restart all pods of workloads"
	cmd.Long = templates.LongDesc(`
		Restart all pods of workloads, as fast as their update strategy allows.

		Deployments, StatefulSets and DaemonSets of Kubernetes get an annotation on their pod template. The kinds of this project would apply
		that in
		place, without a restart: their app containers get the variable RESTARTED_AT, so that pods are made anew. With --in-place the pods stay
		and their
		containers are restarted on their nodes.`)
	cmd.Example = templates.Examples(`
		# Make all pods of two workloads anew
		kubectl afloat rollout restart cloneset/web asts/db

		# Restart the containers, and keep the pods
		kubectl afloat rollout restart cloneset/web --in-place`)
	cmd.Flags().BoolVar(&inPlace, "in-place", false,
		"If true, the containers are restarted and the pods stay. This project's kinds can do that.")

	return cmd
}

// Restart changes the pod templates of an object so that its pods restart. With inPlace the containers restart
// and the pods stay.
func Restart(object *unstructured.Unstructured, now time.Time, inPlace bool) error {
	kind, at := workload.Kind(object), now.UTC().Format(time.RFC3339)
	ours := workloadkind.Of(kind).InPlace || kind == workloadkind.UnitedDeployment

	switch {
	case !ours && kind != workloadkind.Deployment && kind != workloadkind.StatefulSet &&
		kind != workloadkind.DaemonSet:
		return fmt.Errorf("restarting is not supported for a %s", object.GetKind())
	case (kind == workloadkind.Deployment || kind == workloadkind.CloneSet) && workload.IsPaused(object):
		return fmt.Errorf("can't restart paused %s (run rollout resume first)",
			strings.ToLower(object.GetKind()))
	case inPlace && !ours:
		return fmt.Errorf("a %s of Kubernetes cannot restart in place", object.GetKind())
	case ours && !inPlace:
		return setRestarted(object, at)
	}

	paths, err := workload.Templates(object)
	if err != nil {
		return err
	}

	for _, path := range paths {
		key := restartedAt
		if inPlace {
			key = pub.RestartedAt
		}

		if inPlace &&
			(slices.Contains(path, "deploymentTemplate") || slices.Contains(path, "statefulSetTemplate")) {
			return errors.New("its workloads are of Kubernetes and cannot restart in place")
		}

		annotation := path.Child("metadata", "annotations", key)
		if was, _, _ := unstructured.NestedString(object.Object, annotation...); was == at {
			return errRestarted
		}
		if err := unstructured.SetNestedField(object.Object, at, annotation...); err != nil {
			return err
		}
	}

	return nil
}

var errRestarted = errors.New("restart has already been triggered within the past second")

// setRestarted sets the environment variable of restartedEnv in all app containers, which restarts them.
func setRestarted(object *unstructured.Unstructured, at string) error {
	containers, err := workload.Containers(object)
	if err != nil {
		return err
	}

	for _, c := range containers {
		if c.Init {
			continue
		}

		typed, err := c.Typed()
		if err != nil {
			return err
		}

		for _, variable := range typed.Env {
			if variable.Name == restartedEnv && variable.Value == at {
				return errRestarted
			}
		}
		if err := c.SetEnv([]corev1.EnvVar{{Name: restartedEnv, Value: at}}, nil, true); err != nil {
			return err
		}
	}
	return nil
}
