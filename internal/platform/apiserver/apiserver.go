// Package apiserver finds out what an API server is able to do.
package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// InPlace returns what may change in place on this cluster (IPU-094, IPU-113).
func InPlace(cfg *rest.Config, gates *features.Gates) (inplace.Options, error) {
	resize, err := Resizes(cfg, gates, features.InPlaceWorkloadVerticalScaling)
	return inplace.Options{
		EnvFromMetadata: gates.Enabled(features.InPlaceUpdateEnvFromMetadata),
		Resize:          resize,
	}, err
}

// Resizes tells whether the gate is on, and the server has the subresource pods/resize.
func Resizes(cfg *rest.Config, gates *features.Gates, gate featuregate.Feature) (bool, error) {
	if !gates.Enabled(gate) {
		return false, nil
	}

	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return false, fmt.Errorf("discovery: %w", err)
	}

	core, err := client.ServerResourcesForGroupVersion("v1")
	if err != nil {
		return false, fmt.Errorf("discovery: %w", err)
	}

	return slices.ContainsFunc(core.APIResources, func(r metav1.APIResource) bool {
		return r.Name == "pods/resize"
	}), nil
}

// Minor returns the minor version of Kubernetes 1. It is 0, which is older than every feature, if the
// server's version cannot be parsed (OPS-033).
func Minor(ctx context.Context, cfg *rest.Config) (uint, error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return 0, fmt.Errorf("discovery: %w", err)
	}

	text, err := client.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("asking for the version of the server: %w", err)
	}

	var info apimachineryversion.Info
	if err := json.Unmarshal(text, &info); err == nil {
		if parsed, err := version.ParseGeneric(info.GitVersion); err == nil && parsed.Major() == 1 {
			return parsed.Minor(), nil
		}
		if minor, err := strconv.ParseUint(strings.TrimRight(info.Minor, "+"), 10, 16); err == nil &&
			info.Major == "1" {
			return uint(minor), nil
		}
	}
	ctrl.Log.Info("The version of the server cannot be read: features of newer ones are not used",
		"version", string(text))
	return 0, nil
}
